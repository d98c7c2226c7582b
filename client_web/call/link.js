/**
 * One connection to the server: offer, answer, path, channel, greeting, and the end of all that.
 *
 * Either it comes up (`session.created`) within the limit or it fails once, with the code of the leg
 * that hung. After `close()` no handler is called again, whatever arrives late.
 */

import { timeoutCode } from '../core/problems.js';
import { Peer } from './peer.js';
import { CallError, postHangup, postOffer } from './signalling.js';

/** From the offer to `session.created`, ms. */
const CONNECT_MS = 12000;

/** @typedef {import('../core/types.js').WireEvent} WireEvent */

/**
 * @typedef {object} LinkHandlers
 * @property {(step: import('../core/types.js').Step) => void} onstep
 * @property {(event: WireEvent) => void} onevent
 * @property {(stream: MediaStream) => void} onstream
 * @property {(error: CallError) => void} onfail it never came up
 * @property {() => void} onlost it was up and is gone, unasked
 */

export class Link {
  #mic;
  #handlers;
  #abort = new AbortController();
  #location = '';
  #closed = false;
  #up = false;
  /** @type {import('../core/types.js').Step} */
  #step = 'offer';
  /** @type {Peer|null} */
  #peer = null;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  #limit;

  /**
   * @param {MediaStreamTrack|null} mic
   * @param {LinkHandlers} handlers
   */
  constructor(mic, handlers) {
    this.#mic = mic;
    this.#handlers = handlers;
  }

  /** @param {Promise<RTCIceServer[]>} iceServers */
  async open(iceServers) {
    this.#limit = setTimeout(() => this.#tooLate(), CONNECT_MS);
    try {
      const servers = await iceServers;
      if (this.#closed) return;
      this.#peer = this.#newPeer(servers);
      const answer = await postOffer(await this.#peer.offer(), this.#abort.signal);
      // Closed while the server was making room: give the room back.
      if (this.#closed) return postHangup(answer.location);
      this.#location = answer.location;
      this.#reached('network');
      await this.#peer.accept(answer.sdp);
    } catch (error) {
      this.#fail(error instanceof CallError ? error : new CallError('server-http', String(error)));
    }
  }

  /**
   * @param {WireEvent} event
   * @returns {boolean} whether it left
   */
  send(event) {
    return this.#peer?.send(event) ?? false;
  }

  /** @returns {Promise<Record<string, any>[]>} */
  async stats() {
    return (await this.#peer?.stats()) ?? [];
  }

  /** May be called twice. */
  close() {
    this.#closed = true;
    clearTimeout(this.#limit);
    this.#abort.abort();
    // Told first, so that the server need not find out by itself.
    postHangup(this.#location);
    this.#location = '';
    this.#peer?.close();
  }

  /** @param {RTCIceServer[]} servers */
  #newPeer(servers) {
    return new Peer(servers, this.#mic, {
      onstep: (step) => this.#reached(step),
      onstream: (stream) => this.#handlers.onstream(stream),
      onevent: (event) => {
        if (event.type === 'session.created') {
          this.#up = true;
          clearTimeout(this.#limit);
        }
        this.#handlers.onevent(event);
      },
      onlost: (why) => {
        if (this.#closed) return;
        // Nothing is left to hang up.
        if (why === 'ended') this.#location = '';
        if (!this.#up) return this.#fail(new CallError(why === 'ice-failed' ? why : 'connect-timeout', `closed at "${this.#step}"`));
        this.close();
        this.#handlers.onlost();
      },
    });
  }

  /** @param {import('../core/types.js').Step} step */
  #reached(step) {
    if (this.#closed) return;
    this.#step = step;
    this.#handlers.onstep(step);
  }

  #tooLate() {
    this.#fail(new CallError(timeoutCode(this.#step), `the step "${this.#step}" took longer than ${CONNECT_MS / 1000} s`));
  }

  /** @param {CallError} error */
  #fail(error) {
    if (this.#closed) return;
    this.close();
    this.#handlers.onfail(error);
  }
}
