// Drives a headless Chromium over a pipe with the DevTools protocol: pages, input, screenshots, and what went wrong in them.
import { spawn } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";

const TIMEOUT = 30_000;

/** A running browser. */
export class Browser {
  static async start(program, profile) {
    const flags = [
      "--headless=new", "--remote-debugging-pipe", `--user-data-dir=${profile}`, "--no-first-run", "--no-sandbox",
      "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
      "--disable-sync", "--no-default-browser-check", "--hide-scrollbars", "--force-color-profile=srgb", "about:blank",
    ];
    const child = spawn(program, flags, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    return new Browser(child);
  }

  constructor(child) {
    this.child = child;
    this.next = 1;
    this.waiting = new Map();
    this.listeners = new Map();
    let buffered = "";
    child.stdio[4].setEncoding("utf8");
    child.stdio[4].on("data", (data) => {
      const messages = (buffered + data).split("\0");
      buffered = messages.pop();
      for (const message of messages) this.receive(JSON.parse(message));
    });
    child.on("exit", () => {
      for (const { reject } of this.waiting.values()) reject(new Error("the browser ended"));
    });
  }

  receive({ id, sessionId, method, params, result, error }) {
    if (id === undefined) return this.listeners.get(sessionId)?.(method, params);
    const { resolve, reject, sent } = this.waiting.get(id);
    this.waiting.delete(id);
    if (error) reject(new Error(`${sent}: ${error.message}`)); else resolve(result);
  }

  send(method, params = {}, sessionId = undefined) {
    const id = this.next++;
    this.child.stdio[3].write(JSON.stringify({ id, method, params, sessionId }) + "\0");
    return new Promise((resolve, reject) => this.waiting.set(id, { resolve, reject, sent: method }));
  }

  async page() {
    const { targetId } = await this.send("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
    const page = new Page(this, sessionId);
    this.listeners.set(sessionId, (method, params) => page.event(method, params));
    for (const domain of ["Page", "Runtime", "Network", "Log"]) await page.send(`${domain}.enable`);
    return page;
  }

  async stop() {
    const ended = new Promise((resolve) => this.child.once("exit", resolve));
    await this.send("Browser.close").catch(() => {});
    await Promise.race([ended, sleep(5000, undefined, { ref: false })]);
    this.child.kill("SIGKILL");
  }
}

/** A page of the browser. `errors` and `requests` are what it reported so far. */
class Page {
  constructor(browser, session) {
    Object.assign(this, { browser, session, errors: [], requests: [], loaded: () => {} });
  }

  send(method, params) {
    return this.browser.send(method, params, this.session);
  }

  event(method, params) {
    if (method === "Page.loadEventFired") this.loaded();
    if (method === "Network.requestWillBeSent") this.requests.push(params.request.url);
    if (method === "Runtime.exceptionThrown") this.errors.push(JSON.stringify(params.exceptionDetails));
    if (method === "Log.entryAdded" && params.entry.level === "error") this.errors.push(`${params.entry.text} ${params.entry.url ?? ""}`);
    if (method === "Runtime.consoleAPICalled" && params.type === "error") this.errors.push(JSON.stringify(params.args));
  }

  /** Does something that loads a page, and waits for its end. */
  async loads(action) {
    const loaded = new Promise((resolve) => (this.loaded = resolve));
    await action();
    await Promise.race([loaded, sleep(TIMEOUT, undefined, { ref: false }).then(() => { throw new Error("the page did not load"); })]);
  }

  open(url) {
    return this.loads(() => this.send("Page.navigate", { url }));
  }

  /** Returns the value of an expression, or of the promise that it is. */
  async evaluate(expression) {
    const options = { expression, awaitPromise: true, returnByValue: true };
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", options);
    if (exceptionDetails) throw new Error(`${expression}: ${exceptionDetails.exception?.description ?? exceptionDetails.text}`);
    return result.value;
  }

  /** Waits until an expression is true. */
  async until(expression, limit = TIMEOUT) {
    for (const start = Date.now(); Date.now() - start < limit; await sleep(100)) {
      if (await this.evaluate(expression)) return;
    }
    const text = await this.evaluate("document.body.innerText");
    throw new Error(`never true: ${expression}; the page says:\n${text.slice(0, 3000)}`);
  }

  async press(key, code = key) {
    const keys = { key, code, windowsVirtualKeyCode: { Tab: 9, Enter: 13 }[key] };
    await this.send("Input.dispatchKeyEvent", { type: "keyDown", ...keys, text: key === "Enter" ? "\r" : undefined });
    await this.send("Input.dispatchKeyEvent", { type: "keyUp", ...keys });
  }

  size(width, height, mobile = false) {
    return this.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile });
  }

  scheme(value) {
    return this.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value }] });
  }

  async screenshot() {
    const { data } = await this.send("Page.captureScreenshot", { format: "png" });
    return Buffer.from(data, "base64");
  }
}
