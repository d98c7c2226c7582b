/** Numbers about how soon answers come. */

/**
 * @param {number[]} values
 * @param {number} part 0.5 for the median
 * @returns {number|null} nearest-rank percentile
 */
export function percentile(values, part) {
  if (!values.length) return null;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(part * sorted.length) - 1))] ?? null;
}

/**
 * When the user's turn ended: the last loud frame of the microphone where one was seen lately,
 * else the moment the server noticed.
 * @param {number|null} loudAt ms
 * @param {number} stoppedAt ms
 */
export function turnEnd(loudAt, stoppedAt) {
  return loudAt !== null && loudAt <= stoppedAt && stoppedAt - loudAt < 3000 ? loudAt : stoppedAt;
}

/** @param {number} ms */
export function firstSoundWords(ms) {
  return `first sound ${(ms / 1000).toFixed(2)} s`;
}
