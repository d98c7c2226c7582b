/**
 * What each server event changes. Unknown types change nothing: they are only logged.
 *
 * `response.done` does not end "speaking": the server has finished making audio, the browser has
 * not finished playing it. Only the `output_audio_buffer.*` events do.
 */

import { learnedRate } from './captions.js';
import { addItem, assistantText, ensure, newRow, settleItem, truncate, update, withoutEmpty } from './conversation.js';
import { turnEnd } from './latency.js';
import { cutPlaying, move } from './steps.js';

/** @typedef {import('./types.js').State} State */
/** @typedef {import('./types.js').WireEvent} WireEvent */
/** @typedef {{event: WireEvent, epoch: number, now: number, date: number, loudAt: number|null}} Arrival */

/** Errors that nobody need read: a cancel or clear that came too late. */
const HARMLESS = new Set([
  'response_cancel_not_active',
  'conversation_already_has_active_response',
  'input_audio_buffer_commit_empty',
  'item_retrieve_invalid_item_id',
]);

/** @type {Record<string, (state: State, arrival: Arrival) => State>} */
const HANDLERS = {
  'session.created': (state, { event, now, epoch }) => ({
    ...move(state, 'connected', now),
    rows: state.fresh ? withDivider(state.rows, epoch) : state.rows,
    fresh: false,
    callAt: state.callAt ?? now,
    waitingFor: '',
    session: sessionOf(event),
  }),
  'session.updated': (state, { event }) => ({ ...state, session: sessionOf(event) }),
  error: serverError,
  'input_audio_buffer.speech_started': speechStarted,
  'input_audio_buffer.speech_stopped': (state, { now, loudAt }) => ({
    ...move(state, 'speechStopped', now),
    userTalking: false,
    expectingAt: now,
    emptyTurn: false,
    turnEndAt: turnEnd(loudAt, now),
  }),
  'input_audio_buffer.committed': (state, { event, epoch, date }) => {
    const fresh = newRow({ id: event.item_id, role: 'user', status: 'transcribing', epoch, atDate: date });
    return { ...state, rows: ensure(state.rows, fresh, event.previous_item_id) };
  },
  'input_audio_buffer.cleared': (state) => ({ ...state, userTalking: false }),
  'input_audio_buffer.timeout_triggered': (state) => ({ ...state, note: 'Are you still there?' }),
  'conversation.item.added': itemAdded,
  'conversation.item.created': itemAdded,
  'conversation.item.done': itemAdded,
  'conversation.item.retrieved': (state, { event, epoch }) => ({
    ...state,
    rows: settleItem(state.rows, event.item ?? {}, epoch),
  }),
  'conversation.item.deleted': (state, { event }) => ({
    ...state,
    rows: state.rows.filter((row) => row.id !== event.item_id),
  }),
  'conversation.item.truncated': (state, { event }) => ({
    ...state,
    rows: truncate(state.rows, event.item_id, Math.round((event.audio_end_ms / 1000) * state.charsPerSecond)),
  }),
  'conversation.item.input_audio_transcription.delta': (state, { event, epoch, date }) => {
    const fresh = newRow({ id: event.item_id, role: 'user', status: 'transcribing', epoch, atDate: date });
    const rows = ensure(state.rows, fresh, undefined);
    return { ...state, rows: update(rows, event.item_id, (row) => ({ text: row.text + (event.delta ?? '') })) };
  },
  'conversation.item.input_audio_transcription.completed': transcribed,
  'conversation.item.input_audio_transcription.failed': (state, { event }) => ({
    ...state,
    rows: update(state.rows, event.item_id, () => ({ status: 'failed', reason: 'couldn’t be transcribed' })),
  }),
  'response.created': (state, { event, now }) => {
    if (event.response?.conversation_id === null) return state;
    const next = { ...move(state, 'replyExpected', now), toolName: '', emptyTurn: false, expectingAt: null };
    return { ...next, activeResponse: event.response?.id ?? null };
  },
  'response.output_item.added': (state, { event }) =>
    event.item?.type === 'function_call' ? { ...state, toolName: event.item.name ?? 'a tool' } : state,
  'response.output_text.delta': (state, arrival) => spokenText(state, arrival, false),
  'response.output_text.done': (state, arrival) => spokenText(state, arrival, false),
  'response.output_audio_transcript.delta': (state, arrival) => spokenText(state, arrival, true),
  'response.output_audio_transcript.done': (state, arrival) => spokenText(state, arrival, true),
  'response.done': responseDone,
  'output_audio_buffer.started': (state, { event, now }) => ({
    ...move(state, 'audioStarted', now),
    playing: { responseId: event.response_id, startedAt: now, frozenAt: null, heardSound: false },
    expectingAt: null,
    toolName: '',
  }),
  'output_audio_buffer.stopped': audioStopped,
  'output_audio_buffer.cleared': (state, { event, now }) => {
    if (state.playing && state.playing.responseId !== event.response_id) return state;
    return move(cutPlaying(state, 'interrupted', now), 'audioCleared', now);
  },
};

/**
 * @param {State} state
 * @param {Arrival} arrival
 * @returns {State}
 */
export function serverEvent(state, arrival) {
  const handler = Object.hasOwn(HANDLERS, arrival.event.type) ? HANDLERS[arrival.event.type] : undefined;
  return handler ? handler(state, arrival) : state;
}

/**
 * Mark where a new conversation begins: the assistant does not remember what stands above.
 * @param {import('./types.js').Row[]} rows
 * @param {number} epoch
 */
function withDivider(rows, epoch) {
  if (!rows.length) return rows;
  return [...rows, newRow({ id: `call_${epoch}`, role: 'note', status: 'done', text: 'New call', epoch })];
}

/** @param {WireEvent} event */
function sessionOf({ session }) {
  return {
    id: String(session?.id ?? ''),
    model: String(session?.model ?? ''),
    voice: String(session?.audio?.output?.voice ?? ''),
  };
}

/** @type {(state: State, arrival: Arrival) => State} */
function serverError(state, { event, epoch, date }) {
  const { code, message, event_id: cause } = event.error ?? {};
  if (code === 'server_shutting_down') return { ...state, stopping: true };
  if (HARMLESS.has(code) || String(cause ?? '').startsWith('replay_')) return state;
  const row = newRow({
    id: event.event_id ?? `error_${state.rows.length}_${date}`,
    role: 'note',
    status: 'done',
    epoch,
    atDate: date,
    text: `The server said: ${message ?? code ?? 'something went wrong'}`,
  });
  return { ...state, rows: [...state.rows, row] };
}

/** @type {(state: State, arrival: Arrival) => State} */
function speechStarted(state, { now }) {
  const { playing } = state;
  // The clock stops at once; whether the reply was really cut is for the server to say.
  const frozen = playing && state.phase === 'assistantSpeaking' ? { ...playing, frozenAt: now } : playing;
  return { ...move(state, 'speechStarted', now), playing: frozen, userTalking: true };
}

/** @type {(state: State, arrival: Arrival) => State} */
function itemAdded(state, { event, epoch, date }) {
  if (!event.item?.id) return state;
  return { ...state, rows: addItem(state.rows, event.item, event.previous_item_id, epoch, date) };
}

/** @type {(state: State, arrival: Arrival) => State} */
function transcribed(state, { event, now }) {
  const text = String(event.transcript ?? '').trim();
  const rows = update(state.rows, event.item_id, () => ({ text, status: 'done', reason: text ? '' : 'no words' }));
  if (text || state.activeResponse) return { ...state, rows };
  return { ...state, rows, emptyTurn: state.phase === 'thinking', expectingAt: state.expectingAt ?? now };
}

/**
 * @param {State} state
 * @param {Arrival} arrival
 * @param {boolean} voice
 */
function spokenText(state, { event, epoch, date }, voice) {
  return { ...state, rows: assistantText(state.rows, event, voice, epoch, date) };
}

/** @type {(state: State, arrival: Arrival) => State} */
function audioStopped(state, { event, now }) {
  const { playing } = state;
  if (!playing || playing.responseId !== event.response_id) return state;
  const mine = (/** @type {import('./types.js').Row} */ row) =>
    row.role === 'assistant' && row.responseId === playing.responseId;
  const characters = state.rows.filter(mine).reduce((sum, row) => sum + row.text.length, 0);
  const rows = state.rows.map((row) => (mine(row) ? { ...row, heard: Infinity, status: finished(row.status) } : row));
  const rate = playing.frozenAt === null ? learnedRate(state.charsPerSecond, characters, now - playing.startedAt) : null;
  return {
    ...move(state, 'audioEnded', now),
    rows,
    playing: null,
    charsPerSecond: rate ?? state.charsPerSecond,
  };
}

/** @param {import('./types.js').RowStatus} status */
function finished(status) {
  return status === 'streaming' ? 'done' : status;
}

/** @type {Record<string, string>} */
const REASONS = { max_output_tokens: 'too long', content_filter: 'held back by a filter', client_cancelled: 'stopped' };

/** @type {(state: State, arrival: Arrival) => State} */
function responseDone(state, { event, now }) {
  const { id, status, status_details: details, output, conversation_id: conversation } = event.response ?? {};
  if (conversation === null) return state;
  const failed = status === 'failed';
  const rows = state.rows.map((row) => {
    if (row.responseId !== id || row.role !== 'assistant') return row;
    if (status === 'completed') return { ...row, status: finished(row.status) };
    if (status === 'cancelled') return cancelledRow(state, row, details?.reason);
    const reason = REASONS[details?.reason] ?? (failed ? 'failed' : 'cut short');
    /** @type {import('./types.js').Row} */
    const ended = { ...row, status: failed ? 'failed' : 'incomplete', reason };
    return ended;
  });
  const next = {
    ...state,
    rows: status === 'cancelled' ? withoutEmpty(rows, id) : rows,
    activeResponse: state.activeResponse === id ? null : state.activeResponse,
  };
  if (failed) next.note = '';
  const wantsMore = status === 'completed' && (soundIsDue(next, id) || callsTool(output));
  // A turn that cancelled this answer is still waiting for its own.
  const superseded = status === 'cancelled' && state.expectingAt !== null;
  if (state.playing || wantsMore || superseded) return next;
  const settled = move({ ...next, expectingAt: null, toolName: '' }, 'replyEnded', now);
  return failed ? { ...settled, note: details?.error?.message ?? 'The answer failed. Try again?' } : settled;
}

/**
 * @param {State} state
 * @param {import('./types.js').Row} row
 * @param {string|undefined} reason
 * @returns {import('./types.js').Row}
 */
function cancelledRow(state, row, reason) {
  if (row.status === 'stopped' || row.status === 'interrupted') return row;
  const status = reason === 'client_cancelled' ? 'stopped' : 'interrupted';
  if (!row.voice) return { ...row, status };
  const playing = state.playing?.responseId === row.responseId;
  // What was never begun was not heard; what is playing stays on the clock until it is cleared.
  return { ...row, status, heard: playing ? row.heard : (row.heard ?? 0) };
}

/**
 * Audio of a finished response that has not begun to play.
 * @param {State} state
 * @param {string} id
 */
function soundIsDue(state, id) {
  return state.rows.some((row) => row.responseId === id && row.voice && row.heard === null && row.text !== '');
}

/** @param {any} output */
function callsTool(output) {
  return Array.isArray(output) && output.some((item) => item?.type === 'function_call');
}
