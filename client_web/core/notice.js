/** What callers are told of what is kept of their calls. */

/**
 * @param {import('./types.js').Kept} kept
 * @returns {string} '' when nothing is kept
 */
export function noticeWords({ recording, transcripts }) {
  if (recording && transcripts) return 'Calls on this server are recorded and written down.';
  if (recording) return 'Calls on this server are recorded.';
  return transcripts ? 'Calls on this server are written down.' : '';
}
