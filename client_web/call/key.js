/** The server's API key, if it needs one. It stays in this tab and goes with it. */

const PLACE = 'duologue.key';

/** @param {string} key as typed; one that no header can carry is no key */
export function useKey(key) {
  sessionStorage.setItem(PLACE, key.trim().replace(/[^\x21-\x7e]/g, ''));
}

/** @returns {Record<string, string>} what every request to the API carries */
export function keyHeaders() {
  const key = sessionStorage.getItem(PLACE);
  return key ? { Authorization: `Bearer ${key}` } : {};
}
