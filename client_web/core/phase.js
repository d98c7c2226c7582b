/**
 * The phase machine: a table of what may follow what, and the words for each phase.
 *
 * A signal that a phase does not list leaves it as it is: a late event of the wire is no fault.
 */

/** @typedef {import('./types.js').Phase} Phase */
/** @typedef {import('./types.js').Signal} Signal */
/** @typedef {import('./types.js').State} State */

/** @type {Phase[]} */
export const LIVE = ['listening', 'userSpeaking', 'thinking', 'assistantSpeaking', 'interrupted'];

/** @type {Partial<Record<Signal, Phase>>} */
const ANY_LIVE = { audioStarted: 'assistantSpeaking', dropped: 'reconnecting', fail: 'error', hangUp: 'ended' };
/** @type {Partial<Record<Signal, Phase>>} */
const AT_REST = { start: 'asking', startText: 'connecting', block: 'blocked', fail: 'error' };

/** @type {Record<Phase, Partial<Record<Signal, Phase>>>} */
export const NEXT = {
  idle: AT_REST,
  blocked: AT_REST,
  ended: AT_REST,
  error: { ...AT_REST, granted: 'connecting', hangUp: 'idle' },
  asking: { granted: 'connecting', startText: 'connecting', fail: 'error', hangUp: 'ended' },
  connecting: { connected: 'listening', fail: 'error', hangUp: 'ended' },
  reconnecting: { connected: 'listening', fail: 'error', hangUp: 'ended' },
  listening: { ...ANY_LIVE, speechStarted: 'userSpeaking', replyExpected: 'thinking' },
  userSpeaking: { ...ANY_LIVE, speechStopped: 'thinking', quiet: 'listening' },
  thinking: { ...ANY_LIVE, speechStarted: 'userSpeaking', replyEnded: 'listening', quiet: 'listening' },
  assistantSpeaking: {
    ...ANY_LIVE,
    speechStarted: 'interrupted',
    audioCleared: 'interrupted',
    audioEnded: 'listening',
  },
  interrupted: {
    ...ANY_LIVE,
    speaking: 'userSpeaking',
    quiet: 'listening',
    speechStopped: 'thinking',
    replyExpected: 'thinking',
  },
};

/**
 * @param {Phase} phase
 * @param {Signal} signal
 * @returns {Phase}
 */
export function nextPhase(phase, signal) {
  return NEXT[phase][signal] ?? phase;
}

/** @type {Record<import('./types.js').Step, string>} */
const STEP_WORDS = {
  offer: 'Asking the server',
  network: 'Finding a way for the sound',
  channel: 'Opening the line',
  session: 'Waiting for the assistant',
};

const UPDATING = { title: 'The server is being updated', hint: 'Your call goes on by itself in a moment.' };

/** While a call that was up waits to go on, by what it waits for. @type {Record<string, {title: string, hint: string}>} */
const WAITING_WORDS = {
  'server-stopping': UPDATING,
  'server-starting': UPDATING,
  'too-often': { title: 'Too many calls within a minute', hint: 'Your call goes on by itself in a moment.' },
  busy: { title: 'All places are taken', hint: 'Your call goes on as soon as one is free.' },
};

/** What a wait says of the server. @type {Record<string, import('./types.js').Health>} */
const WAITING_HEALTH = {
  dropped: 'unknown',
  'server-down': 'down',
  'server-starting': 'loading',
  'server-stopping': 'stopping',
};

/**
 * How the server is, in agreement with what else the screen says of it.
 * @param {State} state
 * @returns {import('./types.js').Health}
 */
export function shownHealth({ phase, stopping, waitingFor, problem, health }) {
  if (stopping) return 'stopping';
  const waiting = phase === 'reconnecting' ? waitingFor : problem?.retryAt ? problem.code : '';
  return WAITING_HEALTH[waiting] ?? health;
}

/**
 * The state in words: a short headline and one quiet line under it.
 * @param {State} state
 * @param {number} now
 * @returns {{title: string, hint: string}}
 */
export function phaseWords(state, now) {
  const words = ownWords(state, now);
  return state.stopping ? { ...words, hint: 'The server is about to be updated. Your call goes on.' } : words;
}

/** @type {typeof phaseWords} */
function ownWords(state, now) {
  const text = state.mode === 'text';
  const slow = now - state.phaseAt > 3000;
  switch (state.phase) {
    case 'idle':
      return { title: 'Ready', hint: 'Press Start and speak, or type a message.' };
    case 'blocked':
      return { title: 'No microphone here', hint: 'You can still type. Answers are spoken.' };
    case 'asking':
      return {
        title: 'May I listen?',
        hint: slow ? 'The question is near the address bar.' : 'Allow the microphone in the browser’s box.',
      };
    case 'connecting':
      return { title: 'Connecting…', hint: slow ? `${STEP_WORDS[state.step]}…` : 'This takes a moment.' };
    case 'listening':
      if (state.note) return { title: text ? 'Your turn' : 'Listening', hint: state.note };
      if (text) return { title: 'Your turn', hint: 'Type a message below.' };
      if (state.mic === 'muted') return { title: 'Muted', hint: 'Unmute to speak, or type a message.' };
      if (state.mic === 'lost') return { title: 'Microphone lost', hint: 'Plug it in and start again, or type.' };
      return { title: 'Listening', hint: 'Just speak.' };
    case 'userSpeaking':
      return { title: 'I hear you', hint: 'Take your time.' };
    case 'thinking':
      if (state.toolName) return { title: `Using ${state.toolName}`, hint: 'One moment.' };
      return { title: 'Thinking', hint: slow ? 'This one takes a little longer.' : 'One moment.' };
    case 'assistantSpeaking':
      return { title: 'Speaking', hint: text ? 'Type to interrupt.' : 'Talk to interrupt.' };
    case 'interrupted':
      return { title: 'Stopped', hint: 'Go on.' };
    case 'reconnecting':
      return WAITING_WORDS[state.waitingFor] ?? { title: 'Connection lost', hint: 'Trying again…' };
    case 'error':
      if (state.problem?.retryAt) return { title: 'Waiting', hint: 'The call begins by itself.' };
      return { title: 'Something is in the way', hint: 'See the note for a way out.' };
    case 'ended':
      return { title: 'Call ended', hint: state.callMs === null ? 'Nothing was sent.' : spelledDuration(state.callMs) };
  }
}

/**
 * @param {number} ms
 * @returns {string} such as '4 min 12 s'
 */
export function spelledDuration(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  const minutes = Math.floor(seconds / 60);
  return minutes ? `${minutes} min ${seconds % 60} s` : `${seconds} s`;
}
