/**
 * The call: brings one about, keeps it up, ends it. The only place that knows the link, the
 * microphone and the speaker at once; what the screen shows of it goes through `dispatch`.
 */

import { askHeard, silence, typedTurn } from '../core/outgoing.js';
import { Patience } from '../core/patience.js';
import { KEY_CODES, problem } from '../core/problems.js';
import { replay } from '../core/replay.js';
import { openingUpdate, updateFor } from '../core/settings.js';
import { Link } from './link.js';
import { closeMic, openMic } from './mic.js';
import { CallError } from './signalling.js';
import { keepAwake, letSleep } from './wakelock.js';

/** What stops a connection, as the server announces it, and the code of that. @type {Record<string, string>} */
const ENDINGS = { session_expired: 'expired', server_shutting_down: 'server-stopping' };
/** @type {Partial<Record<import('../core/types.js').Health, string>>} */
const NOT_READY = { loading: 'server-starting', stopping: 'server-stopping', down: 'server-down' };

/** Phases without a call, nor one on its way. */
const AT_REST = ['idle', 'blocked', 'ended', 'error'];
const ON_THE_WAY = ['asking', 'connecting', 'reconnecting'];

/** @typedef {import('../core/types.js').State} State */
/** @typedef {import('../core/types.js').Action} Action */
/** @typedef {import('../core/types.js').WireEvent} WireEvent */

/**
 * @typedef {object} Parts
 * @property {(action: Action) => void} dispatch
 * @property {() => State} state
 * @property {import('./speaker.js').Speaker} speaker
 * @property {import('./levels.js').LevelMeter} meter
 * @property {import('../core/redact.js').EventRing} log
 * @property {() => Promise<RTCIceServer[]>} iceServers
 * @property {() => Promise<import('../core/types.js').Health>} health
 * @property {import('../core/problems.js').Context} context
 */

export class VoiceAgentClient {
  #parts;
  /** Counts everything that makes older work void: connections, hang-ups. */
  #epoch = 0;
  /** @type {Link|null} */
  #link = null;
  /** @type {MediaStream|null} */
  #mic = null;
  /** The conversation on screen goes on in the next connection. */
  #continues = false;
  /** Why the server is about to end the connection. @type {CallError|null} */
  #announced = null;
  #patience = new Patience();
  /** Typed before the call was up. @type {string[]} */
  #unsent = [];
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  #again;

  /** @param {Parts} parts */
  constructor(parts) {
    this.#parts = parts;
    parts.meter.onsound = () => {
      const { playing } = parts.state();
      if (playing && !playing.heardSound) parts.dispatch({ type: 'firstSound', now: performance.now() });
    };
    window.addEventListener('pagehide', () => this.#leave());
  }

  /**
   * Begin a call. Must be called inside a click, so that sound is allowed.
   * @param {import('../core/types.js').Mode} mode
   */
  async start(mode) {
    const { dispatch, speaker, meter, state } = this.#parts;
    this.#teardown();
    const epoch = this.#epoch;
    this.#continues = !state().fresh;
    if (!state().problem?.retryAt) this.#patience = new Patience();
    speaker.unlock();
    meter.resume();
    dispatch({ type: 'start', mode, now: performance.now() });
    if (mode === 'text' || (await this.#takeMic(epoch))) this.#connect();
  }

  hangUp() {
    this.#unsent = [];
    this.#teardown();
    this.#parts.dispatch({ type: 'hangUp', now: performance.now() });
    void this.#parts.health();
  }

  /** Silence the microphone only: the reply plays on. @param {boolean} muted */
  setMuted(muted) {
    for (const track of this.#mic?.getAudioTracks() ?? []) track.enabled = !muted;
    if (this.#mic) this.#parts.dispatch({ type: 'mic', mic: muted ? 'muted' : 'live', now: performance.now() });
  }

  /** Stop the answer, whether it is still being made or already only played. */
  stopAnswer() {
    this.#send(...silence(this.#parts.state()));
    this.#parts.dispatch({ type: 'stop', now: performance.now() });
  }

  /**
   * Say something by typing. Without a call, one is begun that needs no microphone.
   * @param {string} text
   */
  sendText(text) {
    const { phase } = this.#parts.state();
    if (!AT_REST.includes(phase) && !ON_THE_WAY.includes(phase)) return this.#say(text);
    this.#unsent.push(text);
    if (AT_REST.includes(phase)) void this.start('text');
  }

  /** @param {Partial<import('../core/types.js').Settings>} patch */
  updateSettings(patch) {
    this.#parts.dispatch({ type: 'settings', patch, now: performance.now() });
    const update = updateFor(patch);
    if (update) this.#send(update);
  }

  /** The sound of the reply may be heard from now on. */
  tapToHear() {
    this.#parts.meter.resume();
    this.#parts.speaker.play();
  }

  /** @returns {Promise<Record<string, any>[]>} the call's raw statistics; empty without one */
  async stats() {
    return (await this.#link?.stats()) ?? [];
  }

  /**
   * @param {number} epoch
   * @returns {Promise<boolean>} false when the call shall not go on
   */
  async #takeMic(epoch) {
    const { dispatch, meter } = this.#parts;
    try {
      const stream = await openMic(() => {
        if (this.#mic === stream) dispatch({ type: 'mic', mic: 'lost', now: performance.now() });
      });
      if (epoch !== this.#epoch) {
        // Granted after the person had left.
        closeMic(stream);
        return false;
      }
      this.#mic = stream;
      meter.tap('mic', stream);
      dispatch({ type: 'micGranted', now: performance.now() });
      return true;
    } catch (error) {
      if (!(error instanceof CallError)) throw error;
      if (epoch === this.#epoch) this.#fail(error);
      return false;
    }
  }

  #connect() {
    const epoch = ++this.#epoch;
    const { dispatch, iceServers, speaker, meter } = this.#parts;
    this.#announced = null;
    dispatch({ type: 'connecting', epoch, now: performance.now() });
    const track = this.#mic?.getAudioTracks()[0] ?? null;
    this.#link = new Link(track, {
      onstep: (step) => dispatch({ type: 'step', step, epoch, now: performance.now() }),
      onevent: (event) => this.#receive(event, epoch),
      onstream: (stream) => {
        speaker.attach(stream);
        meter.tap('out', stream);
      },
      onfail: (error) => this.#failed(error),
      onlost: () => this.#failed(this.#announced ?? new CallError('dropped', 'unannounced')),
    });
    void this.#link.open(iceServers());
  }

  /**
   * @param {WireEvent} event
   * @param {number} epoch
   */
  #receive(event, epoch) {
    const { dispatch, log, meter } = this.#parts;
    const now = performance.now();
    log.add('server', event, now);
    const ending = event.type === 'error' ? ENDINGS[event.error?.code] : undefined;
    if (ending) this.#announced = new CallError(ending, event.error.code, null, String(event.error.message ?? ''));
    dispatch({ type: 'server', event, epoch, now, date: Date.now(), loudAt: meter.loudAt });
    if (event.type === 'session.created') this.#connected();
    if (event.type === 'conversation.item.truncated') this.#send(askHeard(event.item_id));
  }

  #connected() {
    const { settings, rows, epoch } = this.#parts.state();
    this.#patience = new Patience();
    this.#send(openingUpdate(settings));
    if (this.#continues) this.#send(...replay(rows, epoch));
    this.#continues = true;
    for (const text of this.#unsent.splice(0)) this.#say(text);
    void keepAwake();
  }

  /** @param {string} text */
  #say(text) {
    this.#send(...silence(this.#parts.state()));
    const id = `item_${crypto.getRandomValues(new Uint32Array(2)).join('')}`;
    this.#parts.dispatch({ type: 'textSent', id, text, now: performance.now(), date: Date.now() });
    this.#send(...typedTurn(id, text));
  }

  /** @param {WireEvent[]} events */
  #send(...events) {
    for (const event of events) {
      if (this.#link?.send(event)) this.#parts.log.add('client', event, performance.now());
    }
  }

  /**
   * The call did not come up, or is gone. Where that may help it is tried again once the server is ready,
   * and the microphone stays ours meanwhile.
   * @param {CallError} error
   */
  #failed(error) {
    const now = performance.now();
    const wait = this.#patience.after(error.code, error.retryAfterMs, now);
    if (!wait) return this.#giveUp(error);
    this.#closeLink();
    const epoch = this.#epoch;
    this.#tell('wait', new CallError(wait.code, error.detail, null, wait.code === error.code ? error.said : ''), now + wait.pauseMs);
    this.#again = setTimeout(async () => {
      const health = await this.#parts.health();
      if (epoch !== this.#epoch) return;
      const code = NOT_READY[health];
      if (code) this.#failed(new CallError(code, `the server is ${health}`));
      else this.#connect();
    }, wait.pauseMs);
  }

  /** @param {CallError} error */
  #giveUp(error) {
    const lost = this.#parts.state().phase === 'reconnecting' && !KEY_CODES.includes(error.code);
    this.#fail(lost ? new CallError('dropped', error.detail) : error);
  }

  /** @param {CallError} error */
  #fail(error) {
    this.#teardown();
    this.#tell('fail', error, null);
    void this.#parts.health();
  }

  /**
   * @param {'wait'|'fail'} type
   * @param {CallError} error
   * @param {number|null} retryAt
   */
  #tell(type, { code, detail, said }, retryAt) {
    const { context, dispatch, log } = this.#parts;
    const now = performance.now();
    log.add('page', { type: 'problem', code, detail }, now);
    dispatch({ type, problem: problem(code, { ...context, detail, said, retryAt }), now });
  }

  #closeLink() {
    this.#epoch++;
    clearTimeout(this.#again);
    this.#link?.close();
    this.#link = null;
    this.#parts.meter.tap('out', null);
    this.#parts.speaker.detach();
  }

  /** The one way down; may be gone twice. */
  #teardown() {
    this.#closeLink();
    closeMic(this.#mic);
    this.#mic = null;
    this.#parts.meter.tap('mic', null);
    letSleep();
  }

  #leave() {
    const { phase } = this.#parts.state();
    this.#teardown();
    if (!AT_REST.includes(phase)) this.#parts.dispatch({ type: 'hangUp', now: performance.now() });
  }
}
