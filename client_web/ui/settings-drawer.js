/** Settings, kept in this browser and in force at once. */

import { readSettings } from '../core/settings.js';
import { byId, setAttribute, setText } from './dom.js';
import { setIcon } from './icons.js';

/** @typedef {import('../core/types.js').Settings} Settings */

const KEY = 'duologue.settings';
/** A person who types a voice is done after this pause, ms. */
const SETTLED_MS = 400;

/** @returns {Settings} */
export function loadSettings() {
  try {
    return readSettings(JSON.parse(localStorage.getItem(KEY) ?? 'null'));
  } catch {
    return readSettings(null);
  }
}

/** @param {{onchange: (patch: Partial<Settings>) => void}} handlers */
export function settingsView({ onchange }) {
  const dialog = byId('settings', HTMLDialogElement);
  const form = byId('settings-form', HTMLFormElement);
  const open = byId('settings-open', HTMLButtonElement);
  const close = byId('settings-close', HTMLButtonElement);
  const about = byId('about', HTMLElement);
  setIcon(open, 'gear');
  setIcon(close, 'close');
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  let typing;

  open.addEventListener('click', () => {
    dialog.showModal();
    byId('settings-title', HTMLElement).focus();
  });
  close.addEventListener('click', () => dialog.close());
  dialog.addEventListener('click', (event) => {
    if (event.target === dialog) dialog.close();
  });
  dialog.addEventListener('close', () => open.focus());
  form.addEventListener('change', (event) => changed(event.target));
  form.addEventListener('input', (event) => {
    if (!(event.target instanceof HTMLInputElement) || event.target.type !== 'text') return;
    clearTimeout(typing);
    typing = setTimeout(() => changed(event.target), SETTLED_MS);
  });

  /** @param {EventTarget|null} target */
  function changed(target) {
    if (!(target instanceof HTMLInputElement)) return;
    const value = target.type === 'checkbox' ? target.checked : target.value;
    onchange(/** @type {Partial<Settings>} */ ({ [target.name]: value }));
  }

  /** @param {Settings} settings */
  function fill(settings) {
    for (const [name, value] of Object.entries(settings)) {
      const field = form.elements.namedItem(name);
      if (field instanceof RadioNodeList) field.value = String(value);
      else if (field instanceof HTMLInputElement && field.type === 'checkbox') field.checked = Boolean(value);
      else if (field instanceof HTMLInputElement) field.value = String(value);
    }
  }

  /** @type {Settings|null} */
  let applied = null;

  /** @param {import('../core/types.js').State} state */
  function update({ settings, session }) {
    const words = session ? `Model ${session.model || 'unknown'}${session.voice ? `, voice ${session.voice}` : ''}.` : '';
    setText(about, words);
    if (settings === applied) return;
    if (!applied) fill(settings);
    applied = settings;
    setAttribute(document.documentElement, 'data-theme', settings.theme);
    setAttribute(document.documentElement, 'data-calm', String(settings.calm));
    try {
      localStorage.setItem(KEY, JSON.stringify(settings));
    } catch {
      // Storage is off: the settings hold for this visit.
    }
  }

  return { update };
}
