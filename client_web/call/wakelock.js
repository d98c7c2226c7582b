/** Keeps the screen on during a call, where the browser can. */

/** @type {WakeLockSentinel|null} */
let lock = null;
let wanted = false;

export async function keepAwake() {
  wanted = true;
  if (lock || !('wakeLock' in navigator) || document.visibilityState !== 'visible') return;
  try {
    const taken = await navigator.wakeLock.request('screen');
    taken.addEventListener('release', () => (lock = null));
    if (wanted) lock = taken;
    else await taken.release();
  } catch {
    // Refused on low battery: the call works without.
  }
}

export function letSleep() {
  wanted = false;
  lock?.release().catch(() => {});
  lock = null;
}

// The browser takes the lock away with the tab; take it again when the person comes back.
document.addEventListener('visibilitychange', () => {
  if (wanted) void keepAwake();
});
