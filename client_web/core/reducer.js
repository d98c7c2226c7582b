/**
 * (state, action) -> state. The whole page follows from this function.
 *
 * Events of the wire are in `wire.js`; what is here is what the person and the connection do.
 */

import { CHARS_PER_SECOND } from './captions.js';
import { newRow } from './conversation.js';
import { LIVE } from './phase.js';
import { cutPlaying, move } from './steps.js';
import { serverEvent } from './wire.js';

/** @typedef {import('./types.js').State} State */
/** @typedef {import('./types.js').Action} Action */

/** How long "Stopped" stays, ms. */
export const INTERRUPTED_MS = 800;
/** An empty turn without an answer goes back to listening after this, ms. */
export const EMPTY_TURN_MS = 4000;
/** Any other wait for an answer, ms. */
export const ANSWER_MS = 30000;

/**
 * @param {import('./types.js').Settings} settings
 * @returns {State}
 */
export function initialState(settings) {
  return {
    phase: 'idle',
    phaseAt: 0,
    mode: 'voice',
    mic: 'none',
    outputBlocked: false,
    health: 'unknown',
    epoch: 0,
    step: 'offer',
    waitingFor: '',
    fresh: true,
    callAt: null,
    callMs: null,
    session: null,
    rows: [],
    ...quietCall(),
    charsPerSecond: CHARS_PER_SECOND,
    latenciesMs: [],
    note: '',
    problem: null,
    kept: { recording: false, transcripts: false },
    settings,
  };
}

/** What belongs to one connection and dies with it. */
function quietCall() {
  return {
    playing: null,
    activeResponse: null,
    userTalking: false,
    expectingAt: null,
    emptyTurn: false,
    turnEndAt: null,
    toolName: '',
    stopping: false,
  };
}

/**
 * @param {State} state
 * @param {Action} action
 * @returns {State}
 */
export function reduce(state, action) {
  const { now } = action;
  switch (action.type) {
    case 'start': {
      const next = move(state, action.mode === 'text' ? 'startText' : 'start', now);
      return { ...next, mode: action.mode, mic: 'none', problem: null, callAt: null, callMs: null, step: 'offer' };
    }
    case 'block':
      return { ...move(state, 'block', now), problem: action.problem };
    case 'micGranted':
      return { ...move(state, 'granted', now), mic: 'live', mode: 'voice' };
    case 'connecting':
      return {
        ...move(state, 'granted', now),
        ...quietCall(),
        epoch: action.epoch,
        step: 'offer',
        problem: null,
      };
    case 'step':
      return action.epoch === state.epoch ? { ...state, step: action.step } : state;
    case 'server':
      return action.epoch === state.epoch ? serverEvent(state, action) : state;
    case 'textSent':
      return textSent(state, action);
    case 'stop':
      return { ...move(cutPlaying(state, 'stopped', now), 'audioCleared', now), userTalking: false, expectingAt: null };
    case 'firstSound':
      return firstSound(state, now);
    case 'mic':
      return { ...state, mic: action.mic };
    case 'output':
      return { ...state, outputBlocked: action.blocked };
    case 'health':
      return { ...state, health: action.health };
    case 'kept':
      return { ...state, kept: action.kept };
    case 'wait':
      return wait(state, action.problem, now);
    case 'fail': {
      const fresh = state.fresh || LIVE.includes(state.phase);
      const health = action.problem.code === 'server-down' ? 'down' : state.health;
      return { ...move(finishCall(endCall(state, now), now), 'fail', now), problem: action.problem, fresh, health, mic: 'none' };
    }
    case 'hangUp':
      return { ...move(finishCall(endCall(state, now), now), 'hangUp', now), problem: null, fresh: true, mic: 'none', outputBlocked: false };
    case 'settings':
      return { ...state, settings: { ...state.settings, ...action.patch } };
    case 'dismiss':
      return { ...state, problem: null };
    case 'tick':
      return tick(state, now);
  }
}

/**
 * When the state next changes by time alone.
 * @param {State} state
 * @returns {number|null} ms on the clock of `now`
 */
export function deadline(state) {
  if (state.phase === 'interrupted') return state.phaseAt + INTERRUPTED_MS;
  if (state.phase !== 'thinking') return null;
  const wait = state.emptyTurn && !state.activeResponse ? EMPTY_TURN_MS : ANSWER_MS;
  return (state.expectingAt ?? state.phaseAt) + wait;
}

/**
 * @param {State} state
 * @param {number} now
 * @returns {State}
 */
function tick(state, now) {
  const due = deadline(state);
  if (due === null || now < due) return state;
  if (state.phase === 'interrupted') return move(state, state.userTalking ? 'speaking' : 'quiet', now);
  const note = state.emptyTurn ? 'I didn’t catch that. Say it again?' : 'No answer came. Try again?';
  const rows = state.rows.map((row) => (row.voice && row.heard === null ? { ...row, heard: Infinity } : row));
  return { ...move(state, 'quiet', now), rows, note, expectingAt: null, emptyTurn: false, toolName: '' };
}

/**
 * @param {State} state
 * @param {Extract<Action, {type: 'textSent'}>} action
 * @returns {State}
 */
function textSent(state, { id, text, now, date }) {
  const cut = cutPlaying(state, 'interrupted', now);
  const row = newRow({ id, role: 'user', status: 'sending', text, epoch: cut.epoch, atDate: date });
  const due = { ...cut, rows: [...cut.rows, row], turnEndAt: now, expectingAt: now, emptyTurn: false };
  const live = due.phase === 'assistantSpeaking' ? move(due, 'audioCleared', now) : due;
  return { ...move(live, 'replyExpected', now), userTalking: false };
}

/**
 * @param {State} state
 * @param {number} now
 * @returns {State}
 */
function firstSound(state, now) {
  const { playing, turnEndAt } = state;
  if (!playing || playing.heardSound) return state;
  const next = { ...state, playing: { ...playing, startedAt: now, heardSound: true } };
  if (turnEndAt === null || now - turnEndAt > 60000) return { ...next, turnEndAt: null };
  const ms = Math.max(0, now - turnEndAt);
  const index = state.rows.findIndex((row) => row.role === 'assistant' && row.responseId === playing.responseId);
  const rows = state.rows.map((row, at) => (at === index ? { ...row, firstSoundMs: ms } : row));
  return { ...next, rows, turnEndAt: null, latenciesMs: [...state.latenciesMs, ms].slice(-20) };
}

/**
 * The call is tried again by itself. One that was up goes on then, and is still on the stage meanwhile.
 * @param {State} state
 * @param {import('./types.js').Problem} problem
 * @param {number} now
 * @returns {State}
 */
function wait(state, problem, now) {
  const ended = { ...endCall(state, now), step: /** @type {const} */ ('offer') };
  const wasUp = LIVE.includes(state.phase) || state.phase === 'reconnecting';
  if (wasUp) return { ...move(ended, 'dropped', now), waitingFor: problem.code };
  return { ...move(ended, 'fail', now), problem };
}

/**
 * @param {State} state
 * @param {number} now
 * @returns {State}
 */
function endCall(state, now) {
  const cut = cutPlaying(state, 'interrupted', now);
  const rows = cut.rows.map((row) => {
    if (row.status === 'sending') return { ...row, status: /** @type {const} */ ('failed'), reason: 'not sent' };
    if (row.status === 'transcribing' || row.status === 'streaming') {
      return { ...row, status: /** @type {const} */ ('incomplete'), heard: row.voice ? (row.heard ?? 0) : null };
    }
    return row;
  });
  return { ...cut, ...quietCall(), rows };
}

/**
 * @param {State} state
 * @param {number} now
 * @returns {State}
 */
function finishCall(state, now) {
  const connected = state.callAt !== null && (LIVE.includes(state.phase) || state.phase === 'reconnecting');
  return { ...state, callMs: connected && state.callAt !== null ? now - state.callAt : null };
}
