const pad = document.getElementById("pad"), pen = pad.getContext("2d", { willReadFrequently: true });
const bars = document.getElementById("bars"), answer = document.getElementById("answer");
let network = null, last = null;

for (let i = 0; i < SETUP.classes; ++i) {
    const row = document.createElement("li");
    row.innerHTML = `<span>${i}</span><span class="track" role="meter" aria-valuemin="0" aria-valuemax="100"
        aria-valuenow="0" aria-label="Probability of ${i}"><span class="fill" style="display:block"></span></span>
        <span class="percent"></span>`;
    bars.append(row);
}

/* How much of each pixel of the canvas is drawn on, 0 to 1, the box around what is drawn, and its centre of mass (x, y);
   null if nothing is. */
function drawing() {
    const { data } = pen.getImageData(0, 0, pad.width, pad.height);
    const ink = new Float32Array(pad.width * pad.height);
    let left = pad.width, top = pad.height, right = -1, bottom = -1, mass = 0, sumX = 0, sumY = 0;
    for (let y = 0, i = 0; y < pad.height; ++y) {
        for (let x = 0; x < pad.width; ++x, ++i) {
            ink[i] = data[4 * i + 3] / 255;
            mass += ink[i];
            sumX += ink[i] * (x + 0.5);
            sumY += ink[i] * (y + 0.5);
            if (ink[i] < 0.5) continue;
            left = Math.min(left, x);
            right = Math.max(right, x);
            top = Math.min(top, y);
            bottom = Math.max(bottom, y);
        }
    }
    if (right < 0) return null;
    return { ink, left, top, width: right + 1 - left, height: bottom + 1 - top, x: sumX / mass, y: sumY / mass };
}

/* The mean of the ink over each cell of a grid of rows by columns; a cell is so many pixels of the canvas wide. */
function averaged({ ink }, left, top, cell, rows, columns) {
    const FINE = 8, result = new Float32Array(rows * columns);
    for (let i = 0; i < rows * columns; ++i) {
        for (let k = 0; k < FINE * FINE; ++k) {
            const x = Math.floor(left + cell * ((i % columns) + ((k % FINE) + 0.5) / FINE));
            const y = Math.floor(top + cell * (Math.floor(i / columns) + (Math.floor(k / FINE) + 0.5) / FINE));
            if (x >= 0 && y >= 0 && x < pad.width && y < pad.height) result[i] += ink[y * pad.width + x] / (FINE * FINE);
        }
    }
    return result;
}

/* As the digits of scikit-learn: as high as the picture, the centre of mass in the middle of its width, in a grid of 8 x 8 of 17 levels, which is enlarged by 3 with
   interpolation and framed by 4. */
function onGrid(box) {
    const grid = SETUP.grid, cell = Math.max(box.width, box.height) / grid;
    const left = box.x - (grid * cell) / 2, top = box.top + (box.height - grid * cell) / 2;
    const small = averaged(box, left, top, cell, grid, grid).map((value) => Math.round(16 * value) / 16);
    const image = new Float32Array(SETUP.height * SETUP.width), size = 3 * grid, frame = (SETUP.height - size) / 2;
    const place = (i) => Math.min(Math.max((i + 0.5) / 3 - 0.5, 0), grid - 1);
    for (let i = 0; i < size * size; ++i) {
        const y = place(Math.floor(i / size)), x = place(i % size);
        const row = Math.min(Math.floor(y), grid - 2), column = Math.min(Math.floor(x), grid - 2);
        const at = (r, c) => small[(row + r) * grid + column + c];
        const upper = at(0, 0) * (column + 1 - x) + at(0, 1) * (x - column);
        const lower = at(1, 0) * (column + 1 - x) + at(1, 1) * (x - column);
        const target = (Math.floor(i / size) + frame) * SETUP.width + (i % size) + frame;
        image[target] = upper * (row + 1 - y) + lower * (y - row);
    }
    return image;
}

/* As MNIST: the longer side fills 20 of 28 pixels, and the centre of mass is in the middle. */
function byMass(box) {
    const cell = Math.max(box.width, box.height) / ((20 / 28) * SETUP.frame);
    const left = box.x - (cell * SETUP.width) / 2, top = box.y - (cell * SETUP.height) / 2;
    return averaged(box, left, top, cell, SETUP.height, SETUP.width);
}

function probabilities(scores) {
    if (!SETUP.softmax) return Array.from(scores);
    const top = Math.max(...scores), powers = Array.from(scores, (score) => Math.exp(score - top));
    const sum = powers.reduce((a, b) => a + b);
    return powers.map((power) => power / sum);
}

function show(shares) {
    const best = shares ? shares.indexOf(Math.max(...shares)) : -1;
    bars.querySelectorAll("li").forEach((row, i) => {
        const percent = shares ? 100 * shares[i] : 0;
        row.classList.toggle("best", i === best);
        row.querySelector(".fill").style.width = `${percent}%`;
        row.querySelector(".track").setAttribute("aria-valuenow", percent.toFixed(0));
        row.querySelector(".percent").textContent = shares ? `${percent.toFixed(1)} %` : "";
    });
    answer.textContent = shares ? `This is a ${best} (${(100 * shares[best]).toFixed(0)} %).` : "Nothing is drawn yet.";
}

function classify() {
    const box = network && drawing();
    if (!box) return network && show(null);
    const image = SETUP.grid ? onGrid(box) : byMass(box);
    const memory = network.memory.buffer, scale = SETUP.white - SETUP.black;
    new Float32Array(memory, network.page_input(), image.length).set(image.map((value) => SETUP.black + scale * value));
    network.page_run();
    show(probabilities(new Float32Array(memory, network.page_output(), SETUP.classes)));
}

function position(event) {
    const area = pad.getBoundingClientRect(), frame = pad.clientLeft;
    return [event.clientX - area.left - frame, event.clientY - area.top - frame];
}

function draw(event) {
    const [x, y] = position(event);
    pen.lineCap = pen.lineJoin = "round";
    pen.lineWidth = Number(document.getElementById("pen").value);
    pen.beginPath();
    pen.moveTo(...(last ?? [x, y]));
    pen.lineTo(x, y);
    pen.stroke();
    last = [x, y];
}

pad.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    if (event.isTrusted) pad.setPointerCapture(event.pointerId);
    last = null;
    draw(event);
});
pad.addEventListener("pointermove", (event) => {
    if (last && event.buttons & 1) draw(event);
});
for (const name of ["pointerup", "pointercancel"]) {
    pad.addEventListener(name, () => {
        last = null;
        classify();
    });
}

function clear() {
    pen.clearRect(0, 0, pad.width, pad.height);
    last = null;
    show(null);
}
document.getElementById("clear").addEventListener("click", clear);
document.addEventListener("keydown", (event) => event.key === "Escape" && clear());

WebAssembly.instantiate(Uint8Array.from(atob(WASM), (c) => c.charCodeAt(0)), {}).then(
    ({ instance }) => {
        network = instance.exports;
        classify();
    },
    (error) => (answer.textContent = `This browser cannot run the network: ${error}`),
);
