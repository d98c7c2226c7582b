/**
 * The call: brings one about, keeps it up, ends it. The only place that knows the link, the
 * microphone and the speaker at once; what the screen shows of it goes through `dispatch`.
 */

import { askHeard, silence, typedTurn } from '../core/outgoing.js';
import { problem } from '../core/problems.js';
import { replay } from '../core/replay.js';
import { openingUpdate, updateFor } from '../core/settings.js';
import { Link } from './link.js';
import { closeMic, openMic } from './mic.js';
import { CallError, readHealth } from './signalling.js';
import { keepAwake, letSleep } from './wakelock.js';

/** Pauses before each try to reconnect, ms. */
export const BACKOFF_MS = [500, 1000, 2000, 4000, 8000];
/** How often a server that is loading is asked again, ms. */
const LOADING_MS = 2000;
/** How long to wait for a place when the server does not say, ms. */
const BUSY_MS = 5000;

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
  #expired = false;
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
    this.#continues = state().problem?.code === 'dropped';
    this.#expired = false;
    speaker.unlock();
    meter.resume();
    dispatch({ type: 'start', mode, now: performance.now() });
    if (mode === 'text' || (await this.#takeMic(epoch))) this.#connect(0);
  }

  hangUp() {
    this.#unsent = [];
    this.#teardown();
    this.#parts.dispatch({ type: 'hangUp', now: performance.now() });
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

  /** @param {number} attempt 0 for the first connection, else which try of reconnecting */
  #connect(attempt) {
    const epoch = ++this.#epoch;
    const { dispatch, iceServers, speaker, meter } = this.#parts;
    dispatch({ type: 'connecting', epoch, now: performance.now() });
    const track = this.#mic?.getAudioTracks()[0] ?? null;
    this.#link = new Link(track, {
      onstep: (step) => dispatch({ type: 'step', step, epoch, now: performance.now() }),
      onevent: (event) => this.#receive(event, epoch),
      onstream: (stream) => {
        speaker.attach(stream);
        meter.tap('out', stream);
      },
      onfail: (error) => this.#failed(error, attempt),
      onlost: () => (this.#expired ? this.#fail(new CallError('expired', 'session_expired')) : this.#reconnect(1)),
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
    if (event.type === 'error' && event.error?.code === 'session_expired') this.#expired = true;
    dispatch({ type: 'server', event, epoch, now, date: Date.now(), loudAt: meter.loudAt });
    if (event.type === 'session.created') this.#connected();
    if (event.type === 'conversation.item.truncated') this.#send(askHeard(event.item_id));
  }

  #connected() {
    const { settings, rows, epoch } = this.#parts.state();
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

  /** @param {number} attempt from 1 */
  #reconnect(attempt) {
    this.#closeLink();
    const pause = BACKOFF_MS[attempt - 1];
    if (pause === undefined) return this.#fail(new CallError('dropped', `${BACKOFF_MS.length} tries`));
    this.#parts.dispatch({ type: 'dropped', attempt, now: performance.now() });
    this.#again = setTimeout(() => this.#connect(attempt), pause);
  }

  /**
   * @param {CallError} error
   * @param {number} attempt
   */
  #failed(error, attempt) {
    if (attempt > 0) return this.#reconnect(attempt + 1);
    if (error.code === 'busy') return this.#failAndRetry(error, error.retryAfterMs ?? BUSY_MS);
    if (error.code === 'server-starting') return this.#failAndRetry(error, LOADING_MS);
    this.#fail(error);
  }

  /** @param {CallError} error */
  #fail(error) {
    this.#teardown();
    this.#show(error, null);
  }

  /**
   * Say what is in the way, and try again by itself: the microphone stays ours meanwhile.
   * @param {CallError} error
   * @param {number} waitMs
   */
  #failAndRetry(error, waitMs) {
    this.#closeLink();
    const epoch = this.#epoch;
    this.#show(error, performance.now() + waitMs);
    this.#again = setTimeout(async () => {
      const loading = error.code === 'server-starting' && (await readHealth()) === 'loading';
      if (epoch !== this.#epoch) return;
      if (loading) this.#failAndRetry(error, LOADING_MS);
      else this.#connect(0);
    }, waitMs);
  }

  /**
   * @param {CallError} error
   * @param {number|null} retryAt
   */
  #show({ code, detail }, retryAt) {
    const { context, dispatch, log } = this.#parts;
    const now = performance.now();
    log.add('page', { type: 'problem', code, detail }, now);
    dispatch({ type: 'fail', problem: problem(code, { ...context, detail, retryAt }), now });
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
