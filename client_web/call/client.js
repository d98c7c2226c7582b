/**
 * The call: brings one about, keeps it up, ends it. The only place that knows peers, the microphone
 * and the speaker at once; what the screen shows of it goes through `dispatch`.
 *
 * Every connection has an epoch. Whatever finishes after its epoch is over is thrown away, so that
 * a late answer, a late permission or a late event of an old call changes nothing.
 */

import { problem, timeoutCode } from '../core/problems.js';
import { openingUpdate, updateFor } from '../core/settings.js';
import { replay } from '../core/replay.js';
import { closeMic, openMic } from './mic.js';
import { Peer } from './peer.js';
import { CallError, postHangup, postOffer, readHealth } from './signalling.js';
import { keepAwake, letSleep } from './wakelock.js';

/** From Start to `session.created`, ms. */
const CONNECT_MS = 12000;
/** Pauses before each try to reconnect, ms. */
export const BACKOFF_MS = [500, 1000, 2000, 4000, 8000];
/** How often a server that is loading is asked again, ms. */
const LOADING_MS = 2000;
/** How long to wait for a place when the server does not say, ms. */
const BUSY_MS = 5000;

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
  #epoch = 0;
  #location = '';
  #ended = false;
  /** The conversation on screen goes on in the new connection. */
  #continues = false;
  /** @type {Peer|null} */
  #peer = null;
  /** @type {MediaStream|null} */
  #mic = null;
  /** @type {AbortController|null} */
  #offering = null;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  #limit;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  #again;
  /** Typed before the call was up. @type {string[]} */
  #unsent = [];

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
    const { dispatch, speaker, meter } = this.#parts;
    this.#teardown();
    const epoch = this.#epoch;
    this.#continues = this.#parts.state().problem?.code === 'dropped';
    speaker.unlock();
    meter.resume();
    dispatch({ type: 'start', mode, now: performance.now() });
    if (mode === 'voice' && !(await this.#takeMic(epoch))) return;
    await this.#connect(0);
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
    this.#silence();
    this.#parts.dispatch({ type: 'stop', now: performance.now() });
  }

  /**
   * Say something by typing. Without a call, one is begun that needs no microphone.
   * @param {string} text
   */
  sendText(text) {
    const { phase } = this.#parts.state();
    if (['idle', 'blocked', 'ended', 'error'].includes(phase)) {
      this.#unsent.push(text);
      void this.start('text');
    } else if (['asking', 'connecting', 'reconnecting'].includes(phase)) {
      this.#unsent.push(text);
    } else {
      this.#say(text);
    }
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

  /** @returns {Promise<Record<string, any>[]>} the last call's raw statistics; empty without one */
  async stats() {
    return (await this.#peer?.stats()) ?? [];
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
        closeMic(stream);
        return false;
      }
      this.#mic = stream;
      meter.tap('mic', stream);
      dispatch({ type: 'micGranted', now: performance.now() });
      return true;
    } catch (error) {
      if (epoch === this.#epoch) this.#fail(/** @type {CallError} */ (error));
      return false;
    }
  }

  /** @param {number} attempt 0 for the first connection, else which try of reconnecting */
  async #connect(attempt) {
    const epoch = ++this.#epoch;
    const { dispatch, iceServers } = this.#parts;
    dispatch({ type: 'connecting', epoch, now: performance.now() });
    this.#limit = setTimeout(() => this.#tooLate(epoch, attempt), CONNECT_MS);
    this.#offering = new AbortController();
    const { signal } = this.#offering;
    try {
      const servers = await iceServers();
      if (epoch !== this.#epoch) return;
      const peer = this.#newPeer(servers, epoch, attempt);
      const answer = await postOffer(await peer.offer(), signal);
      if (epoch !== this.#epoch) return postHangup(answer.location);
      this.#location = answer.location;
      dispatch({ type: 'step', step: 'network', epoch, now: performance.now() });
      await peer.accept(answer.sdp);
    } catch (error) {
      if (epoch !== this.#epoch) return;
      const known = error instanceof CallError ? error : new CallError('server-http', String(error));
      this.#failed(known, attempt);
    }
  }

  /**
   * @param {RTCIceServer[]} servers
   * @param {number} epoch
   * @param {number} attempt
   */
  #newPeer(servers, epoch, attempt) {
    const { dispatch, speaker, meter } = this.#parts;
    const peer = new Peer(servers, this.#mic?.getAudioTracks()[0] ?? null, {
      onstep: (step) => dispatch({ type: 'step', step, epoch, now: performance.now() }),
      onevent: (event) => this.#receive(event, epoch),
      onstream: (stream) => {
        speaker.attach(stream);
        meter.tap('out', stream);
      },
      onlost: (why) => {
        if (epoch !== this.#epoch) return;
        if (this.#limit === undefined) this.#dropped();
        else this.#failed(new CallError(why === 'dropped' ? 'connect-timeout' : why, 'the peer connection closed'), attempt);
      },
    });
    this.#peer = peer;
    return peer;
  }

  /**
   * @param {WireEvent} event
   * @param {number} epoch
   */
  #receive(event, epoch) {
    if (epoch !== this.#epoch) return;
    const { dispatch, log, meter } = this.#parts;
    const now = performance.now();
    log.add('server', event, now);
    if (event.type === 'error' && event.error?.code === 'session_expired') this.#ended = true;
    dispatch({ type: 'server', event, epoch, now, date: Date.now(), loudAt: meter.loudAt });
    if (event.type === 'session.created') this.#connected();
    // The server keeps only what was heard: ask how much that was, rather than guess.
    if (event.type === 'conversation.item.truncated') {
      this.#send({ type: 'conversation.item.retrieve', event_id: `replay_${event.item_id}`, item_id: event.item_id });
    }
  }

  #connected() {
    clearTimeout(this.#limit);
    this.#limit = undefined;
    const { settings, rows, epoch } = this.#parts.state();
    this.#send(openingUpdate(settings));
    if (this.#continues) for (const event of replay(rows, epoch)) this.#send(event);
    this.#continues = true;
    for (const text of this.#unsent.splice(0)) this.#say(text);
    void keepAwake();
  }

  /** @param {string} text */
  #say(text) {
    this.#silence();
    const id = `item_${crypto.getRandomValues(new Uint32Array(2)).join('').slice(0, 20)}`;
    const content = [{ type: 'input_text', text }];
    this.#parts.dispatch({ type: 'textSent', id, text, now: performance.now(), date: Date.now() });
    this.#send({ type: 'conversation.item.create', item: { id, type: 'message', role: 'user', content } });
    this.#send({ type: 'response.create' });
  }

  #silence() {
    const { activeResponse, playing } = this.#parts.state();
    if (activeResponse) this.#send({ type: 'response.cancel' });
    if (activeResponse || playing) this.#send({ type: 'output_audio_buffer.clear' });
  }

  /** @param {WireEvent} event */
  #send(event) {
    if (this.#peer?.send(event)) this.#parts.log.add('client', event, performance.now());
  }

  #dropped() {
    if (this.#ended) return this.#fail(new CallError('expired', 'session_expired'));
    this.#reconnect(1);
  }

  /** @param {number} attempt from 1 */
  #reconnect(attempt) {
    this.#closePeer();
    this.#epoch++;
    if (attempt > BACKOFF_MS.length) return this.#fail(new CallError('dropped', ''));
    this.#parts.dispatch({ type: 'dropped', attempt, now: performance.now() });
    this.#again = setTimeout(() => void this.#connect(attempt), BACKOFF_MS[attempt - 1]);
  }

  /**
   * @param {number} epoch
   * @param {number} attempt
   */
  #tooLate(epoch, attempt) {
    if (epoch !== this.#epoch) return;
    const { step } = this.#parts.state();
    this.#failed(new CallError(timeoutCode(step), `the step "${step}" took longer than 12 s`), attempt);
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
    this.#parts.log.add('page', { type: 'problem', code: error.code, detail: error.detail }, performance.now());
    this.#teardown();
    const { context, dispatch } = this.#parts;
    dispatch({ type: 'fail', problem: problem(error.code, { ...context, detail: error.detail }), now: performance.now() });
  }

  /**
   * Say what is in the way, and try again by itself: the microphone stays ours meanwhile.
   * @param {CallError} error
   * @param {number} waitMs
   */
  #failAndRetry(error, waitMs) {
    this.#closePeer();
    const epoch = ++this.#epoch;
    const { context, dispatch } = this.#parts;
    const now = performance.now();
    const shown = problem(error.code, { ...context, detail: error.detail, retryAt: now + waitMs });
    dispatch({ type: 'fail', problem: shown, now });
    this.#again = setTimeout(async () => {
      const loading = error.code === 'server-starting' && (await readHealth()) === 'loading';
      if (epoch !== this.#epoch) return;
      if (loading) this.#failAndRetry(error, LOADING_MS);
      else await this.#connect(0);
    }, waitMs);
  }

  /** @param {{leaving?: boolean}} [options] */
  #closePeer(options) {
    clearTimeout(this.#limit);
    clearTimeout(this.#again);
    this.#limit = undefined;
    this.#offering?.abort();
    this.#offering = null;
    this.#peer?.close();
    this.#peer = null;
    postHangup(this.#location, options);
    this.#location = '';
    this.#parts.meter.tap('out', null);
    this.#parts.speaker.detach();
  }

  /** The one way down; may be gone twice. @param {{leaving?: boolean}} [options] */
  #teardown(options) {
    this.#epoch++;
    this.#ended = false;
    this.#closePeer(options);
    closeMic(this.#mic);
    this.#mic = null;
    this.#parts.meter.tap('mic', null);
    letSleep();
  }

  #leave() {
    const { phase } = this.#parts.state();
    this.#teardown({ leaving: true });
    if (!['idle', 'blocked', 'ended', 'error'].includes(phase)) {
      this.#parts.dispatch({ type: 'hangUp', now: performance.now() });
    }
  }
}
