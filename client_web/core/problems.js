/**
 * Everything that can go wrong, in plain words, each with a way out.
 *
 * Pure: what the browser or the server reported goes in, what the person reads comes out.
 */

/** @typedef {import('./types.js').Problem} Problem */
/** @typedef {import('./types.js').ProblemAction} ProblemAction */
/** @typedef {'chrome'|'firefox'|'safari'|'other'} Browser */
/** @typedef {{browser?: Browser, host?: string, detail?: string, said?: string, retryAt?: number|null}} Context */

/** @type {Record<ProblemAction, string>} */
const LABELS = { retry: 'Try again', text: 'Use text instead', leave: 'Leave', hear: 'Tap to hear', dismiss: 'Close' };

/** @type {Record<Browser, string[]>} */
const ALLOW_STEPS = {
  chrome: [
    'Press the icon at the left end of the address.',
    'Set Microphone to “Allow”.',
    'Come back here and try again.',
  ],
  firefox: [
    'Press the crossed-out microphone in the address bar.',
    'Remove “Blocked”.',
    'Come back here and try again.',
  ],
  safari: [
    'Open Settings for this website (on iPhone: the “aA” beside the address).',
    'Set Microphone to “Allow”.',
    'Come back here and try again.',
  ],
  other: ['Open the page’s permissions in your browser.', 'Allow the microphone.', 'Come back here and try again.'],
};

/**
 * @typedef {object} Entry
 * @property {string} title
 * @property {string} cause
 * @property {true=} quotes the server's own sentence, where it said one, is the cause
 * @property {ProblemAction[]} actions
 * @property {((context: Context) => string[])=} remedy
 * @property {Partial<Record<ProblemAction, string>>=} labels
 */

/** @type {Record<string, Entry>} */
const TABLE = {
  'insecure-context': {
    title: 'The microphone needs a secure address',
    cause: 'Browsers only allow microphones on https or on localhost.',
    remedy: ({ host }) => [
      `Open this page with https, if the server has a certificate: https://${host ?? 'this-server'}`,
      `Or reach it as localhost: ssh -L 8080:localhost:8080 ${(host ?? 'this-server').split(':')[0]}`,
      'Or type: answers are still spoken.',
    ],
    actions: ['text'],
    labels: { text: 'Use text' },
  },
  'mic-unsupported': {
    title: 'This browser has no microphone for web pages',
    cause: 'It does not offer the microphone to any page.',
    actions: ['text'],
  },
  'mic-denied': {
    title: 'The microphone is blocked',
    cause: 'The browser was told not to share it, and it remembers that.',
    remedy: ({ browser }) => ALLOW_STEPS[browser ?? 'other'],
    actions: ['retry', 'text'],
  },
  'mic-dismissed': {
    title: 'The question was closed',
    cause: 'The browser asked for the microphone and got no answer.',
    actions: ['retry', 'text'],
    labels: { retry: 'Ask again' },
  },
  'mic-missing': {
    title: 'No microphone found',
    cause: 'The browser sees no device that can record.',
    remedy: () => ['Plug one in, or switch your headset on.', 'Check that the system itself sees it.'],
    actions: ['retry', 'text'],
    labels: { retry: 'Search again' },
  },
  'mic-busy': {
    title: 'The microphone is in use',
    cause: 'Another program holds it, or it stopped working.',
    remedy: () => ['Close other calls and recorders.', 'Or unplug the microphone and plug it in again.'],
    actions: ['retry', 'text'],
  },
  'mic-failed': {
    title: 'The microphone did not start',
    cause: 'The browser gave no reason that this page knows.',
    actions: ['retry', 'text'],
  },
  'server-down': {
    title: 'The server did not answer',
    cause: 'It may be stopped, or the network between you and it is interrupted.',
    actions: ['retry', 'leave'],
  },
  'server-starting': {
    title: 'The models are loading',
    cause: 'The server has just started. The call begins by itself as soon as it is ready.',
    actions: ['retry', 'leave'],
    labels: { retry: 'Check now', leave: 'Stop waiting' },
  },
  'server-stopping': {
    title: 'The server is being updated',
    cause: 'The call begins by itself in a moment.',
    actions: ['retry', 'leave'],
    labels: { retry: 'Try now', leave: 'Stop waiting' },
  },
  busy: {
    title: 'All places are taken',
    cause: 'Everybody who fits is already in a call. This page tries again by itself.',
    actions: ['retry', 'leave'],
    labels: { retry: 'Try now' },
  },
  'too-often': {
    title: 'Too many calls within a minute',
    cause: 'The server wants a pause. This page tries again by itself.',
    quotes: true,
    actions: ['retry', 'leave'],
    labels: { retry: 'Try now', leave: 'Stop waiting' },
  },
  'key-busy': {
    title: 'This key has no call left',
    cause: 'It is used in other calls. End one of them first.',
    quotes: true,
    actions: ['retry', 'leave'],
  },
  auth: {
    title: 'This server needs a key',
    cause: 'Ask whoever runs it for one, and enter it here. It is forgotten when you close this tab.',
    actions: ['retry', 'leave'],
    labels: { retry: 'Use this key' },
  },
  'key-wrong': {
    title: 'That key is not valid',
    cause: 'The server does not know it, or no longer. Check it, and enter it again.',
    actions: ['retry', 'leave'],
    labels: { retry: 'Use this key' },
  },
  'server-http': {
    title: 'The server refused the call',
    cause: 'It gave the reason below.',
    quotes: true,
    actions: ['retry', 'leave'],
  },
  'ice-failed': {
    title: 'Sound can’t get through',
    cause: 'The server was found, but no path for sound was. A firewall or VPN is the usual reason.',
    remedy: () => [
      'Try without a VPN, or from another network.',
      'If you run the server: open its UDP ports, set its public address, or add a TURN server.',
    ],
    actions: ['retry', 'leave'],
  },
  'channel-timeout': {
    title: 'The line did not open',
    cause: 'Sound gets through, but the channel for messages stayed shut for 12 seconds.',
    actions: ['retry', 'leave'],
  },
  'connect-timeout': {
    title: 'Connecting took too long',
    cause: 'Nothing came back for 12 seconds.',
    actions: ['retry', 'leave'],
  },
  dropped: {
    title: 'The connection was lost',
    cause: 'The server did not come back within three minutes. What was said stays on this page.',
    actions: ['retry', 'leave'],
  },
  expired: {
    title: 'The server ended the call',
    cause: 'It ends calls after a while. You can start another.',
    quotes: true,
    actions: ['retry', 'leave'],
    labels: { retry: 'Start again' },
  },
  'autoplay-blocked': {
    title: 'Sound is off in this tab',
    cause: 'The browser waits for a tap before it plays the answer.',
    actions: ['hear'],
  },
  unsupported: {
    title: 'This browser can’t make calls',
    cause: 'It has no WebRTC, or it is switched off.',
    remedy: () => ['Use a current Chrome, Edge, Firefox or Safari.'],
    actions: ['dismiss'],
  },
};

export const CODES = Object.freeze(Object.keys(TABLE));
/** Those that a key helps against. */
export const KEY_CODES = Object.freeze(['auth', 'key-wrong']);

/**
 * @param {string} code one of CODES; any other reads as the server's refusal
 * @param {Context} [context]
 * @returns {Problem}
 */
export function problem(code, context = {}) {
  const entry = /** @type {Entry} */ (TABLE[code] ?? TABLE['server-http']);
  return {
    code,
    title: entry.title,
    cause: (entry.quotes && context.said) || entry.cause,
    remedy: entry.remedy ? entry.remedy(context) : [],
    buttons: entry.actions.map((action) => ({ action, label: entry.labels?.[action] ?? LABELS[action] })),
    detail: context.detail ?? '',
    retryAt: context.retryAt ?? null,
  };
}

/**
 * The code for a refused or failed getUserMedia.
 * @param {{name?: string, message?: string}} error
 * @param {string} permission 'granted', 'denied', 'prompt' or '' where the browser will not say
 */
export function micCode(error, permission) {
  switch (error.name) {
    case 'NotAllowedError':
    case 'SecurityError':
      if (/dismiss/i.test(error.message ?? '')) return 'mic-dismissed';
      return permission === 'prompt' ? 'mic-dismissed' : 'mic-denied';
    case 'NotFoundError':
    case 'OverconstrainedError':
      return 'mic-missing';
    case 'NotReadableError':
    case 'AbortError':
      return 'mic-busy';
    default:
      return 'mic-failed';
  }
}

const STARTING = /load|start|warm|not_ready/i;
const STOPPING = /shut|drain|stop/i;
const FULL = /full|capacity/i;

/**
 * The code for an answer of the server that is not a call.
 * @param {number} status
 * @param {string} errorCode of the error body, '' if none
 * @param {boolean} [keyed] a key was sent
 */
export function httpCode(status, errorCode, keyed = false) {
  if (status === 401 && keyed) return 'key-wrong';
  if (status === 401 || (status === 403 && errorCode !== 'origin_not_allowed')) return 'auth';
  if (status === 503 && STARTING.test(errorCode)) return 'server-starting';
  if (status === 503 && STOPPING.test(errorCode)) return 'server-stopping';
  if (status === 503 && FULL.test(errorCode)) return 'busy';
  if (status === 429) return errorCode === 'too_many_sessions' ? 'key-busy' : 'too-often';
  // A proxy without a server behind it.
  if (status === 502 || status === 504 || (status === 503 && !errorCode)) return 'server-down';
  return 'server-http';
}

/**
 * The code for a connection that was not up in time.
 * @param {import('./types.js').Step} step the one that hung
 */
export function timeoutCode(step) {
  if (step === 'network') return 'ice-failed';
  return step === 'channel' ? 'channel-timeout' : 'connect-timeout';
}

/**
 * @param {string} agent navigator.userAgent
 * @returns {Browser}
 */
export function browserOf(agent) {
  if (/firefox|fxios/i.test(agent)) return 'firefox';
  if (/chrome|chromium|crios|edg/i.test(agent)) return 'chrome';
  return /safari/i.test(agent) ? 'safari' : 'other';
}
