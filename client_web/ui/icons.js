/** Line icons, drawn on a 24 by 24 grid. */

const SVG = 'http://www.w3.org/2000/svg';

const PATHS = {
  mic: 'M12 3a3 3 0 0 1 3 3v5a3 3 0 0 1-6 0V6a3 3 0 0 1 3-3ZM5.5 11a6.5 6.5 0 0 0 13 0M12 17.5V21',
  micOff: 'M9 9v2a3 3 0 0 0 4.7 2.5M15 11V6a3 3 0 0 0-5.8-1M5.5 11a6.5 6.5 0 0 0 10.6 5M18.3 13a6.5 6.5 0 0 0 .2-2M12 17.500V21M4 4l16 16',
  hangUp: 'M12 9.2c-2.1 0-4.1.3-5.9 1v2.6c0 .5-.3.9-.7 1.1-.9.5-1.7 1.1-2.4 1.7a1.2 1.2 0 0 1-1.7 0L.4 14.7a1 1 0 0 1 0-1.4C3.4 10.3 7.5 8.6 12 8.6s8.6 1.7 11.6 4.7a1 1 0 0 1 0 1.4l-.9.9a1.2 1.2 0 0 1-1.7 0c-.7-.7-1.5-1.2-2.4-1.7a1.2 1.2 0 0 1-.7-1.1v-2.6c-1.8-.6-3.8-1-5.9-1Z',
  stop: 'M7.5 7.500h9v9h-9z',
  gear: 'M4 7h9M17.5 7H20M4 12h2.500M11 12h9M4 17h9M17.5 17H20M15.250 4.750v4.500M8.750 9.750v4.500M15.250 14.750v4.5',
  close: 'M6 6l12 12M18 6L6 18',
  send: 'M12 19V5.500M6 11.500l6-6 6 6',
  up: 'M6 14.500l6-6 6 6',
  down: 'M12 5v13.500M6 12.500l6 6 6-6',
};

/**
 * @param {keyof typeof PATHS} name
 * @returns {SVGSVGElement}
 */
export function icon(name) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('aria-hidden', 'true');
  svg.setAttribute('focusable', 'false');
  const path = document.createElementNS(SVG, 'path');
  path.setAttribute('d', PATHS[name]);
  svg.append(path);
  return svg;
}

/**
 * @param {Element} holder
 * @param {keyof typeof PATHS} name
 */
export function setIcon(holder, name) {
  if (holder.getAttribute('data-icon') === name) return;
  holder.setAttribute('data-icon', name);
  holder.replaceChildren(icon(name));
}
