// Small charts of the last two minutes, drawn on a canvas in the colours of the theme.

import { h } from "./dom.js";

export const POINTS = 120;

export class Chart {
  constructor(name, series, format) {
    this.series = series;
    this.format = format;
    this.values = series.map(() => []);
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.value = h("span", { class: "value" }, "–");
    this.more = h("span", { class: "more" });
    const legend = series.length > 1
      ? h("div", { class: "legend" }, series.map((each, at) => h("span", {}, h("b", { class: `k${"abc"[at]}` }, "■ "), each))) : null;
    this.element = h("div", { class: "card chart", role: "group", "aria-label": name },
      h("div", { class: "name" }, name), h("div", {}, this.value, this.more), this.canvas, legend);
  }

  clear() {
    this.values = this.series.map(() => []);
    this.value.textContent = "–";
    this.more.textContent = "";
  }

  add(values, more = "") {
    values.forEach((value, at) => {
      this.values[at].push(value);
      if (this.values[at].length > POINTS) this.values[at].shift();
    });
    this.value.textContent = this.format(values[0]);
    this.more.textContent = more;
    if (!this.drawing) this.drawing = requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.drawing = null;
    const { canvas } = this;
    const scale = window.devicePixelRatio || 1;
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    if (!width) return;
    canvas.width = width * scale;
    canvas.height = height * scale;
    const style = getComputedStyle(canvas);
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    const top = Math.max(...this.values.flat(), 0) * 1.15 || 1;
    pen.strokeStyle = style.getPropertyValue("--line");
    pen.lineWidth = 1;
    pen.beginPath();
    for (const share of [0, 0.5, 1]) {
      const y = Math.round((height - 1) * share) + 0.5;
      pen.moveTo(0, y);
      pen.lineTo(width, y);
    }
    pen.stroke();
    this.values.forEach((values, at) => this.line(pen, values, style.getPropertyValue(`--${"abc"[at]}`), width, height, top, at === 0));
    pen.fillStyle = style.getPropertyValue("--soft");
    pen.font = "10px system-ui, sans-serif";
    pen.strokeStyle = style.getPropertyValue("--card");
    pen.lineWidth = 3; // so that the number can be read over a line
    pen.strokeText(this.format(top), 2, 10);
    pen.fillText(this.format(top), 2, 10);
  }

  line(pen, values, colour, width, height, top, filled) {
    if (!values.length) return;
    const step = width / (POINTS - 1);
    const from = width - (values.length - 1) * step;
    pen.beginPath();
    values.forEach((value, at) => {
      const y = height - 1 - (value / top) * (height - 2);
      if (at) pen.lineTo(from + at * step, y); else pen.moveTo(from, y);
    });
    pen.strokeStyle = colour;
    pen.lineWidth = 1.5;
    pen.stroke();
    if (!filled) return;
    pen.lineTo(width, height);
    pen.lineTo(from, height);
    pen.globalAlpha = 0.12;
    pen.fillStyle = colour;
    pen.fill();
    pen.globalAlpha = 1;
  }
}
