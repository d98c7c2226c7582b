/** What a person can choose, how it is kept, and what it means to the server. */

/** @typedef {import('./types.js').Settings} Settings */

/** @type {Readonly<Settings>} */
export const DEFAULTS = Object.freeze({
  voice: '',
  pause: 'medium',
  atOnce: false,
  theme: 'auto',
  calm: false,
  keys: true,
});

/** Silence that ends the user's turn, in ms. */
export const PAUSE_MS = Object.freeze({ short: 300, medium: 500, long: 1000 });

const CHOICES = { pause: ['short', 'medium', 'long'], theme: ['auto', 'light', 'dark'] };

/**
 * Settings from anything that was once stored; what does not fit is the default.
 * @param {unknown} stored
 * @returns {Settings}
 */
export function readSettings(stored) {
  const from = /** @type {Record<string, any>} */ (stored && typeof stored === 'object' ? stored : {});
  return {
    voice: typeof from.voice === 'string' ? from.voice.slice(0, 64) : DEFAULTS.voice,
    pause: CHOICES.pause.includes(from.pause) ? from.pause : DEFAULTS.pause,
    theme: CHOICES.theme.includes(from.theme) ? from.theme : DEFAULTS.theme,
    atOnce: typeof from.atOnce === 'boolean' ? from.atOnce : DEFAULTS.atOnce,
    calm: typeof from.calm === 'boolean' ? from.calm : DEFAULTS.calm,
    keys: typeof from.keys === 'boolean' ? from.keys : DEFAULTS.keys,
  };
}

/**
 * The session.update that opens a call. A pause nobody chose is left to the server.
 * @param {Settings} settings
 */
export function openingUpdate(settings) {
  /** @type {Record<string, any>} */
  const input = { transcription: { model: 'whisper-1' } };
  if (settings.pause !== DEFAULTS.pause) input.turn_detection = turnDetection(settings.pause);
  /** @type {Record<string, any>} */
  const audio = { input };
  if (settings.voice.trim()) audio.output = { voice: settings.voice.trim() };
  return { type: 'session.update', session: { type: 'realtime', audio } };
}

/**
 * The session.update for a change in the middle of a call, or null when the server need not know.
 * A voice cannot change once it has spoken: it waits for the next call.
 * @param {Partial<Settings>} patch
 */
export function updateFor(patch) {
  if (!patch.pause) return null;
  return {
    type: 'session.update',
    session: { type: 'realtime', audio: { input: { turn_detection: turnDetection(patch.pause) } } },
  };
}

/** @param {import('./types.js').Pause} pause */
function turnDetection(pause) {
  return { type: 'server_vad', silence_duration_ms: PAUSE_MS[pause] };
}
