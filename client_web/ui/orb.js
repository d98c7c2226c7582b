/**
 * The orb: one soft body whose colour tells the phase and whose shape tells the level.
 *
 * It decorates what the words beside it say. When the picture shall be still it is drawn once per
 * phase, and the level is left to the meter.
 */

/** @typedef {import('../core/types.js').Phase} Phase */
/** @typedef {[string, string, string]} Palette body, left light, right light */

/** @type {Record<Phase, Palette>} */
const PALETTES = {
  idle: ['#7d83e8', '#b79bf5', '#6fd3d6'],
  blocked: ['#9aa0b3', '#b9bdcb', '#d3c9b6'],
  asking: ['#6d74e6', '#e0a3f0', '#7ec8f2'],
  connecting: ['#6d74e6', '#7ec8f2', '#9be7d8'],
  listening: ['#14a899', '#6ee7c8', '#4aa8f0'],
  userSpeaking: ['#f0874f', '#ffc46b', '#ef6a92'],
  thinking: ['#8a63e8', '#d79bf5', '#6b8df5'],
  assistantSpeaking: ['#4f5ae8', '#46c9ee', '#b06cf2'],
  interrupted: ['#8f93a8', '#c9b08a', '#a9adc2'],
  reconnecting: ['#d19a34', '#f0cf7e', '#c98b5f'],
  error: ['#b35f69', '#d99a93', '#8d7f95'],
  ended: ['#8a8fa6', '#b3b7c9', '#9fb4bd'],
};

/** How far each phase lets the body breathe without any sound, and how fast it turns. */
const MOTION = {
  idle: [0.012, 0.25],
  blocked: [0, 0.05],
  asking: [0.03, 0.5],
  connecting: [0.03, 0.9],
  listening: [0.014, 0.35],
  userSpeaking: [0.02, 0.7],
  thinking: [0.035, 1.3],
  assistantSpeaking: [0.02, 0.9],
  interrupted: [0, 0.1],
  reconnecting: [0.025, 0.8],
  error: [0, 0.05],
  ended: [0, 0.05],
};

const TAU = Math.PI * 2;

export class Orb {
  #canvas;
  #context;
  #phase = /** @type {Phase} */ ('idle');
  /** @type {number[][]} */
  #colours = PALETTES.idle.map(parse);
  #breath = 0.01;
  #turn = 0;
  #last = 0;
  #drawnStill = '';

  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.#canvas = canvas;
    this.#context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  }

  /** @param {Phase} phase */
  setPhase(phase) {
    this.#phase = phase;
  }

  /**
   * @param {number} now ms
   * @param {number} mic 0 to 1
   * @param {number} out 0 to 1
   * @param {boolean} still
   */
  draw(now, mic, out, still) {
    const size = this.#fit();
    const step = Math.min(0.1, (now - this.#last) / 1000);
    this.#last = now;
    const key = `${this.#phase} ${size}`;
    if (still && key === this.#drawnStill) return;
    this.#drawnStill = still ? key : '';
    const [breath, speed] = /** @type {[number, number]} */ (MOTION[this.#phase]);
    const ease = still ? 1 : 1 - Math.exp(-step * 5);
    this.#breath += (breath - this.#breath) * ease;
    this.#turn += step * speed;
    PALETTES[this.#phase].map(parse).forEach((target, at) => {
      const colour = /** @type {number[]} */ (this.#colours[at]);
      target.forEach((value, part) => (colour[part] = /** @type {number} */ (colour[part]) * (1 - ease) + value * ease));
    });
    const hearing = this.#phase === 'listening' || this.#phase === 'userSpeaking';
    const level = still ? 0 : this.#phase === 'assistantSpeaking' ? out : hearing ? mic : 0;
    this.#paint(size, still ? 0.8 : this.#turn, level, mic);
  }

  /** @returns {number} the side in device pixels */
  #fit() {
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    const size = Math.round(this.#canvas.clientWidth * ratio);
    if (this.#canvas.width !== size) this.#canvas.width = this.#canvas.height = size;
    return size;
  }

  /**
   * @param {number} size
   * @param {number} turn
   * @param {number} level
   * @param {number} mic
   */
  #paint(size, turn, level, mic) {
    const g = this.#context;
    const [body, left, right] = /** @type {[number[], number[], number[]]} */ (this.#colours);
    const centre = size / 2;
    const radius = size * 0.29 * (1 + Math.sin(turn * 3) * this.#breath + level * 0.1);
    g.clearRect(0, 0, size, size);
    this.#glow(centre, Math.min(centre, radius * 1.68), body, 0.32 + level * 0.2);
    this.#rings(centre, radius, level, mic, turn);
    g.save();
    this.#outline(centre, radius, turn, 0.012 + this.#breath * 0.6 + level * 0.06);
    g.clip();
    const base = g.createLinearGradient(centre, centre - radius, centre, centre + radius);
    base.addColorStop(0, css(mixed(body, left, 0.35), 1));
    base.addColorStop(1, css(mixed(body, [20, 16, 60], 0.22), 1));
    g.fillStyle = base;
    g.fillRect(0, 0, size, size);
    this.#light(centre + Math.cos(turn) * radius * 0.5, centre + Math.sin(turn * 1.3) * radius * 0.42, radius * 1.05, left, 0.85);
    this.#light(centre + Math.cos(turn + 2.4) * radius * 0.58, centre + Math.sin(turn * 0.8 + 2) * radius * 0.55, radius * 0.95, right, 0.8);
    this.#light(centre + Math.cos(turn * 0.7 + 4.2) * radius * 0.4, centre + radius * 0.62, radius * 0.8, body, 0.7);
    this.#light(centre - radius * 0.32, centre - radius * 0.5, radius * 0.62, [255, 255, 255], 0.42);
    g.restore();
  }

  /**
   * A closed curve that is a circle in silence.
   * @param {number} centre
   * @param {number} radius
   * @param {number} turn
   * @param {number} depth
   */
  #outline(centre, radius, turn, depth) {
    const g = this.#context;
    g.beginPath();
    for (let at = 0; at <= 96; at++) {
      const angle = (at / 96) * TAU;
      const wave =
        Math.sin(angle * 3 + turn * 2.1) * 0.5 + Math.sin(angle * 2 - turn * 1.7) * 0.35 + Math.sin(angle * 5 + turn * 3.3) * 0.15;
      const reach = radius * (1 + wave * depth);
      g.lineTo(centre + Math.cos(angle) * reach, centre + Math.sin(angle) * reach);
    }
    g.closePath();
  }

  /**
   * A ring for listening, running arcs for waiting, a broken ring for what is cut off.
   * @param {number} centre
   * @param {number} radius
   * @param {number} level
   * @param {number} mic
   * @param {number} turn
   */
  #rings(centre, radius, level, mic, turn) {
    const g = this.#context;
    const [body] = /** @type {[number[]]} */ (this.#colours);
    const reach = radius * 1.22;
    g.lineWidth = Math.max(1.5, radius * 0.016);
    g.lineCap = 'round';
    const arc = (/** @type {number} */ r, /** @type {number} */ from, /** @type {number} */ to, /** @type {number} */ alpha) => {
      g.strokeStyle = css(body, alpha);
      g.beginPath();
      g.arc(centre, centre, r, from, to);
      g.stroke();
    };
    switch (this.#phase) {
      case 'listening':
      case 'userSpeaking':
        arc(reach + mic * radius * 0.1, 0, TAU, 0.4);
        arc(reach + radius * 0.14 + mic * radius * 0.24, 0, TAU, 0.2);
        break;
      case 'assistantSpeaking':
        arc(reach + level * radius * 0.12, 0, TAU, 0.22);
        break;
      case 'asking':
      case 'connecting':
      case 'thinking':
        for (const offset of [0, TAU / 3, (2 * TAU) / 3]) arc(reach, turn * 2.2 + offset, turn * 2.2 + offset + 0.7, 0.65);
        break;
      case 'reconnecting':
      case 'interrupted':
        for (let at = 0; at < 12; at++) arc(reach, turn + (at / 12) * TAU, turn + (at / 12) * TAU + 0.22, 0.5);
        break;
    }
  }

  /**
   * @param {number} centre
   * @param {number} reach
   * @param {number[]} colour
   * @param {number} alpha
   */
  #glow(centre, reach, colour, alpha) {
    const g = this.#context;
    const paint = g.createRadialGradient(centre, centre, reach * 0.45, centre, centre, reach);
    paint.addColorStop(0, css(colour, alpha));
    paint.addColorStop(0.55, css(colour, alpha * 0.35));
    paint.addColorStop(1, css(colour, 0));
    g.fillStyle = paint;
    g.fillRect(0, 0, centre * 2, centre * 2);
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} reach
   * @param {number[]} colour
   * @param {number} alpha
   */
  #light(x, y, reach, colour, alpha) {
    const g = this.#context;
    const paint = g.createRadialGradient(x, y, 0, x, y, reach);
    paint.addColorStop(0, css(colour, alpha));
    paint.addColorStop(1, css(colour, 0));
    g.fillStyle = paint;
    g.fillRect(0, 0, g.canvas.width, g.canvas.height);
  }
}

/** @param {string} hex */
function parse(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

/**
 * @param {number[]} a
 * @param {number[]} b
 * @param {number} share of b
 */
function mixed(a, b, share) {
  return a.map((value, at) => value * (1 - share) + /** @type {number} */ (b[at]) * share);
}

/**
 * @param {number[]} colour
 * @param {number} alpha
 */
function css([r = 0, g = 0, b = 0], alpha) {
  return `rgba(${Math.round(r)}, ${Math.round(g)}, ${Math.round(b)}, ${alpha})`;
}
