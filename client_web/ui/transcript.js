/** The whole conversation: keyed rows that stay in view unless the reader has scrolled away. */

import { captionParts } from '../core/captions.js';
import { firstSoundWords, percentile } from '../core/latency.js';
import { byId, make, setAttribute, setHidden, setText } from './dom.js';
import { setIcon } from './icons.js';

/** @typedef {import('../core/types.js').State} State */
/** @typedef {import('../core/types.js').Row} Row */
/** @typedef {{element: HTMLLIElement, row: Row|null, who: HTMLElement, meta: HTMLElement, heard: HTMLElement, coming: HTMLElement, unheard: HTMLElement}} Shown */

const WHO = { user: 'You', assistant: 'Assistant', tool: 'Tool', note: 'Note' };
/** Distance from the end that still counts as reading along, px. */
const NEAR = 60;

export function transcriptView() {
  const list = byId('transcript', HTMLOListElement);
  const scroller = byId('scroller', HTMLElement);
  const newest = byId('newest', HTMLButtonElement);
  const empty = byId('empty', HTMLElement);
  const latency = byId('latency', HTMLElement);
  const sheet = byId('sheet-toggle', HTMLButtonElement);
  const sheetWords = byId('sheet-words', HTMLElement);
  /** @type {Map<string, Shown>} */
  const shown = new Map();
  let follow = true;
  setIcon(byId('sheet-icon', HTMLElement), 'up');

  scroller.addEventListener('scroll', () => {
    follow = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR;
    setHidden(newest, follow);
  });
  newest.addEventListener('click', () => toEnd());
  sheet.addEventListener('click', () => {
    const open = document.body.toggleAttribute('data-sheet');
    sheet.setAttribute('aria-expanded', String(open));
    toEnd();
  });

  function toEnd() {
    follow = true;
    setHidden(newest, true);
    scroller.scrollTop = scroller.scrollHeight;
  }

  /**
   * @param {State} state
   * @param {number} now
   */
  function update(state, now) {
    const ids = new Set(state.rows.map(({ id }) => id));
    for (const [id, { element }] of shown) {
      if (ids.has(id)) continue;
      element.remove();
      shown.delete(id);
    }
    state.rows.forEach((row, at) => {
      const view = shown.get(row.id) ?? newRowView(row);
      shown.set(row.id, view);
      if (list.children[at] !== view.element) list.insertBefore(view.element, list.children[at] ?? null);
      fill(view, row, state, now);
    });
    setHidden(empty, state.rows.length > 0);
    setHidden(list, state.rows.length === 0);
    const spoken = state.rows.filter(({ role }) => role !== 'note').length;
    setText(sheetWords, spoken ? `Conversation · ${spoken}` : 'Conversation');
    const median = percentile(state.latenciesMs, 0.5);
    setText(latency, median === null ? '' : `typical ${firstSoundWords(median)}`);
    if (follow) scroller.scrollTop = scroller.scrollHeight;
  }

  return { update };
}

/**
 * @param {Row} row
 * @returns {Shown}
 */
function newRowView(row) {
  const element = make('li', 'row');
  element.dataset.role = row.role;
  element.dataset.itemId = row.id;
  const head = make('p', 'row-head');
  const who = make('span', 'row-who', WHO[row.role]);
  const meta = make('span', 'row-meta');
  head.append(who, meta);
  const body = make('p', 'row-text');
  body.dir = 'auto';
  const heard = make('span', 'heard');
  const coming = make('span', 'coming');
  const unheard = make('del', 'unheard');
  body.append(heard, coming, unheard);
  element.append(head, body);
  return { element, row: null, who, meta, heard, coming, unheard };
}

/**
 * @param {Shown} view
 * @param {Row} row
 * @param {State} state
 * @param {number} now
 */
function fill(view, row, state, now) {
  const parts = captionParts(row, state, now);
  setAttribute(view.element, 'data-status', row.status);
  setText(view.heard, parts.heard || placeholder(row, parts));
  view.heard.classList.toggle('placeholder', !parts.heard && placeholder(row, parts) !== '');
  setText(view.coming, parts.coming);
  setText(view.unheard, parts.unheard);
  if (row.role === 'tool') setText(view.who, row.name || WHO.tool);
  setText(view.meta, meta(row));
}

/**
 * @param {Row} row
 * @param {{coming: string, unheard: string}} parts
 */
function placeholder(row, { coming, unheard }) {
  if (coming || unheard) return '';
  if (row.role === 'user') {
    if (row.status === 'transcribing') return '…';
    return row.status === 'done' ? '(no words)' : row.reason;
  }
  return row.status === 'streaming' ? '…' : '';
}

/** @param {Row} row */
function meta(row) {
  const words = [];
  if (row.role === 'tool') words.push(row.status === 'streaming' ? 'running' : row.reason.slice(0, 60) || row.status);
  if (row.firstSoundMs !== null) words.push(firstSoundWords(row.firstSoundMs));
  if (row.status === 'interrupted' || row.status === 'stopped') words.push(row.status);
  if (row.role !== 'tool' && (row.status === 'failed' || row.status === 'incomplete')) words.push(row.reason || 'cut short');
  return words.join(' · ');
}
