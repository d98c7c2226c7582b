/** Keys that work outside of fields: M mutes, Esc stops the answer, T goes to the text box. */

/**
 * @param {object} handlers
 * @param {() => boolean} handlers.enabled
 * @param {() => void} handlers.onmute
 * @param {() => void} handlers.onstop
 * @param {() => void} handlers.ontext
 */
export function shortcuts({ enabled, onmute, onstop, ontext }) {
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || event.isComposing) return;
    // An open dialog owns Escape.
    if (document.querySelector('dialog[open]')) return;
    if (event.key === 'Escape') return onstop();
    if (!enabled() || inField(event.target)) return;
    if (event.key === 'm' || event.key === 'M') onmute();
    if (event.key === 't' || event.key === 'T') {
      event.preventDefault();
      ontext();
    }
  });
}

/** @param {EventTarget|null} target */
function inField(target) {
  return target instanceof Element && target.closest('input, textarea, select, [contenteditable]') !== null;
}
