/** What is in the way: title, cause, numbered remedy, buttons, and what a developer wants to know. */

import { KEY_CODES } from '../core/problems.js';
import { byId, make, setAttribute, setHidden, setText } from './dom.js';

/** @typedef {import('../core/types.js').State} State */
/** @typedef {import('../core/types.js').Problem} Problem */

/**
 * @param {object} handlers
 * @param {(action: import('../core/types.js').ProblemAction) => void} handlers.onaction
 * @param {(key: string) => void} handlers.onkey called before onaction, when a key was entered
 * @param {() => Promise<string>} handlers.report everything worth copying
 */
export function problemView({ onaction, onkey, report }) {
  const box = byId('problem', HTMLElement);
  const title = byId('problem-title', HTMLElement);
  const cause = byId('problem-cause', HTMLElement);
  const remedy = byId('problem-remedy', HTMLOListElement);
  const keyForm = byId('problem-key-form', HTMLFormElement);
  const key = byId('problem-key', HTMLInputElement);
  const wait = byId('problem-wait', HTMLElement);
  const buttons = byId('problem-buttons', HTMLElement);
  const detail = byId('problem-detail', HTMLElement);
  const detailBox = byId('problem-detail-box', HTMLDetailsElement);
  const copy = byId('problem-copy', HTMLButtonElement);
  /** @type {Problem|null} */
  let shown = null;

  copy.addEventListener('click', async () => {
    const text = await report();
    try {
      await navigator.clipboard.writeText(text);
      setText(copy, 'Copied');
    } catch {
      // The clipboard is shut on insecure pages: show it, so that it can be taken by hand.
      setText(detail, text);
    }
  });

  /** @param {import('../core/types.js').ProblemAction} action */
  function act(action) {
    const entered = key.value;
    keyForm.reset();
    if (entered && action === 'retry') onkey(entered);
    onaction(action);
  }

  keyForm.addEventListener('submit', (event) => {
    event.preventDefault();
    act('retry');
  });

  /** @param {Problem} problem */
  function show(problem) {
    setAttribute(box, 'data-code', problem.code);
    setText(title, problem.title);
    setText(cause, problem.cause);
    remedy.replaceChildren(...problem.remedy.map((step) => make('li', '', step)));
    setHidden(remedy, problem.remedy.length === 0);
    buttons.replaceChildren(
      ...problem.buttons.map(({ action, label }, at) => {
        const button = make('button', at === 0 ? 'button strong' : 'button quiet', label);
        button.type = 'button';
        button.dataset.action = action;
        button.addEventListener('click', () => act(action));
        return button;
      }),
    );
    setHidden(keyForm, !KEY_CODES.includes(problem.code));
    setAttribute(key, 'aria-invalid', String(problem.code === 'key-wrong'));
    detailBox.open = false;
    setText(detail, `${problem.code}${problem.detail ? `: ${problem.detail}` : ''}`);
    setText(copy, 'Copy details');
  }

  /**
   * @param {State} state
   * @param {number} now
   */
  function update({ problem, phase }, now) {
    if (problem !== shown) {
      const again = problem !== null && shown?.code === problem.code;
      if (problem) show(problem);
      setHidden(box, problem === null);
      if (!problem) box.removeAttribute('data-code');
      shown = problem;
      // A page that is blocked from the start must not steal the focus; nor must every new try.
      if (problem && phase !== 'blocked' && !again) title.focus();
    }
    const left = problem?.retryAt ? Math.max(0, Math.ceil((problem.retryAt - now) / 1000)) : null;
    setHidden(wait, left === null);
    if (left !== null) setText(wait, left ? `Trying again in ${left} s` : 'Trying again…');
  }

  return { update };
}
