/**
 * The reply's sound: one audio element in the page, so that the browser's echo canceller knows it.
 *
 * It is never muted and unmuted: iOS pauses an element that began muted.
 */

export class Speaker {
  #element;
  #onblocked;

  /**
   * @param {HTMLAudioElement} element
   * @param {(blocked: boolean) => void} onblocked
   */
  constructor(element, onblocked) {
    this.#element = element;
    this.#onblocked = onblocked;
  }

  /** Call it inside a click, before anything is awaited. */
  unlock() {
    if (this.#element.srcObject) this.play();
    else this.#element.play().catch(() => {});
  }

  /** @param {MediaStream} stream */
  attach(stream) {
    this.#element.srcObject = stream;
    this.play();
  }

  /** Also the answer to "Tap to hear". */
  play() {
    this.#element.play().then(
      () => this.#onblocked(false),
      (error) => {
        if (error?.name === 'NotAllowedError') this.#onblocked(true);
      },
    );
  }

  detach() {
    this.#element.srcObject = null;
  }
}
