/** One peer connection and its event channel, from the offer to the close. Never used twice. */

/** How long a path may be gone before it counts as lost, ms. */
const GRACE_MS = 3000;

/**
 * @typedef {object} PeerHandlers
 * @property {(step: import('../core/types.js').Step) => void} onstep
 * @property {(event: import('../core/types.js').WireEvent) => void} onevent
 * @property {(stream: MediaStream) => void} onstream
 * @property {(why: 'ice-failed'|'dropped'|'ended') => void} onlost 'ended' by the far end; called at most once, never after close()
 */

export class Peer {
  #pc;
  #channel;
  #handlers;
  #closed = false;
  #connected = false;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  #grace;

  /**
   * @param {RTCIceServer[]} iceServers
   * @param {MediaStreamTrack|null} mic null makes a call that only listens
   * @param {PeerHandlers} handlers
   */
  constructor(iceServers, mic, handlers) {
    this.#handlers = handlers;
    this.#pc = new RTCPeerConnection({ iceServers });
    if (mic) this.#pc.addTrack(mic, new MediaStream([mic]));
    else this.#pc.addTransceiver('audio', { direction: 'recvonly' });
    this.#channel = this.#pc.createDataChannel('oai-events');
    this.#channel.onmessage = ({ data }) => this.#receive(data);
    this.#channel.onopen = () => handlers.onstep('session');
    this.#channel.onclose = () => this.#lost('ended');
    this.#pc.ontrack = ({ streams, track }) => handlers.onstream(streams[0] ?? new MediaStream([track]));
    this.#pc.onconnectionstatechange = () => this.#connectionChanged();
  }

  /** @returns {Promise<string>} the offer, without waiting for candidates: the server finds us */
  async offer() {
    await this.#pc.setLocalDescription();
    return this.#pc.localDescription?.sdp ?? '';
  }

  /** @param {string} sdp */
  async accept(sdp) {
    await this.#pc.setRemoteDescription({ type: 'answer', sdp });
  }

  /**
   * @param {import('../core/types.js').WireEvent} event
   * @returns {boolean} whether it left
   */
  send(event) {
    if (this.#channel.readyState !== 'open') return false;
    this.#channel.send(JSON.stringify(event));
    return true;
  }

  /** @returns {Promise<Record<string, any>[]>} */
  async stats() {
    return [...(await this.#pc.getStats()).values()];
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#grace);
    this.#channel.close();
    this.#pc.close();
  }

  /** @param {unknown} data */
  #receive(data) {
    if (this.#closed || typeof data !== 'string') return;
    let event;
    try {
      event = JSON.parse(data);
    } catch {
      return;
    }
    if (typeof event?.type === 'string') this.#handlers.onevent(event);
  }

  #connectionChanged() {
    clearTimeout(this.#grace);
    const state = this.#pc.connectionState;
    if (state === 'connected' && !this.#connected) {
      this.#connected = true;
      if (this.#channel.readyState !== 'open') this.#handlers.onstep('channel');
    }
    if (state === 'failed' || state === 'closed') this.#lost(this.#connected ? 'dropped' : 'ice-failed');
    if (state === 'disconnected') this.#grace = setTimeout(() => this.#lost('dropped'), GRACE_MS);
  }

  /** @param {'ice-failed'|'dropped'|'ended'} why */
  #lost(why) {
    if (this.#closed) return;
    this.close();
    this.#handlers.onlost(why);
  }
}
