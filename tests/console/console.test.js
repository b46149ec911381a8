// The console of a running cluster in a browser. `run` starts the cluster, and sets CONSOLE_URL (with its token), CHROMIUM and WORK.
import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { request } from "node:http";
import { after, before, test } from "node:test";
import { Browser } from "./chromium.js";

const { CONSOLE_URL, CHROMIUM, WORK } = process.env;
const base = new URL(CONSOLE_URL).origin;
const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const DESKTOP = [1280, 900];
const PHONE = [390, 844];
const PAGES = {
  overview: "/",
  kinds: "/objects",
  pods: "/objects?kind=pods",
  deployment: "/object/apps/v1/deployments/shop/web",
  pod: "/object/core/v1/pods/shop/huge",
  node: "/object/core/v1/nodes/-/node-1",
  scheduling: "/pod/shop/huge/scheduling",
  preemption: "/pod/shop/important/scheduling",
  scores: "/pod/shop/hostile/scheduling",
  controller: "/controller/replicaset-controller",
  events: "/events",
  edit: "/edit/apps/v1/deployments/shop/web",
  whatif: "/what-if",
  simulation: "/simulation",
  login: "/login",
  missing: "/object/core/v1/pods/shop/nobody",
};

let browser, page;
before(async () => {
  browser = await Browser.start(CHROMIUM, `${WORK}/profile`);
  page = await browser.page();
  await page.size(...DESKTOP);
  await page.scheme("light");
});
after(() => browser?.stop());

const open = (path) => page.open(base + path);
const text = () => page.evaluate("document.getElementById('main').innerText");
const keep = async (name) => writeFile(`${WORK}/${name}.png`, await page.screenshot());

/** Returns the status of a request without the browser. */
const status = (path, headers = {}, method = "GET") =>
  new Promise((resolve, reject) => {
    const sent = request(base + path, { method, headers }, (answer) => resolve(answer.resume().statusCode));
    sent.on("error", reject).end();
  });

test("nobody gets in without the token", async () => {
  assert.equal(await status("/"), 401);
  assert.equal(await status("/?token=guessed"), 401);
  assert.equal(await status("/live?page=/"), 401);
  assert.equal(await status("/", { host: "evil.example" }), 421);
  assert.equal(await status("/switch", {}, "POST"), 403);
});

test("the URL with the token leads to the overview, and the token leaves the address", async () => {
  await page.open(CONSOLE_URL);
  assert.equal(await page.evaluate("location.href"), `${base}/`);
  assert.equal(await page.evaluate("document.querySelectorAll('.heat .cell.ready').length"), 5);
  await page.until("document.querySelectorAll('.plot polyline').length >= 3");
  assert.match(await text(), /5 \/ 5\s+nodes Ready/);
});

test("a deployment's page has its pods, and what its controllers observe", async () => {
  await open(PAGES.deployment);
  await page.until("document.querySelectorAll('.tree li li li').length === 3");
  const shown = await text();
  assert.match(await text(), /Nothing to do: /);
  for (const wanted of [/deployment-controller/, /wanted/, /ReplicaSet shop\/web-/, /Pod shop\/web-/, /ScalingReplicaSet/]) {
    assert.match(shown, wanted);
  }
  await page.evaluate("document.getElementById('yaml').open = true");
  assert.match(await text(), /kind: Deployment/);
  assert.doesNotMatch(await text(), /managedFields/);
});

test("a Secret's values are not shown", async () => {
  await open("/object/core/v1/secrets/shop/password");
  const html = await page.evaluate("document.documentElement.outerHTML");
  assert.match(html, /\(not shown\)/);
  for (const hidden of ["hunter2", Buffer.from("hunter2").toString("base64")]) assert.ok(!html.includes(hidden), hidden);
});

test("a pending pod's page names the plugins that refuse, and whom a preemption would evict", async () => {
  await open(PAGES.scheduling);
  const shown = await text();
  assert.match(shown, /NodeResourcesFit/);
  assert.match(shown, /Insufficient cpu/);
  assert.match(shown, /0\/5 nodes are available/);
  await open("/pod/shop/important/scheduling");
  assert.match(await text(), /Preemption would evict[\s\S]*shop\/filler-/);
});

test("the heat map follows a node that a switch makes silent, without a reload", async () => {
  const watching = page;
  await open(PAGES.overview);
  await page.evaluate("document.querySelector('.heat a[href$=\"node-1\"]').focus(); window.mark = 1");
  const other = await browser.page();
  await other.open(base + PAGES.node);
  await other.loads(() => other.evaluate("document.querySelector('#switches button').click()"));
  await other.until("document.querySelector('#switches button').getAttribute('aria-pressed') === 'true'");
  // A page out of sight is not kept current.
  await watching.send("Page.bringToFront");
  await watching.until("/silent/.test(document.querySelector('.heat a[href$=\"node-1\"]').innerText)");
  assert.equal(await page.evaluate("window.mark"), 1, "the page was loaded again");
  assert.match(await page.evaluate("document.activeElement.href"), /node-1$/, "the focus is lost");
  await page.until("document.querySelector('.heat a[href$=\"node-1\"]').matches('.unknown')", 120_000);
  await keep("silent");
  await other.loads(() => other.evaluate("document.querySelector('#switches button').click()"));
  await other.send("Page.close");
  await watching.send("Page.bringToFront");
  await page.until("document.querySelector('.heat a[href$=\"node-1\"]').matches('.ready')", 60_000);
  for (const error of page.errors) assert.fail(error);
});

test("a pending pod's page begins with the cause", async () => {
  await open(PAGES.pod);
  const shown = await text();
  assert.match(shown, /Why\s+it is not scheduled: 0\/5 nodes are available/);
  assert.ok(shown.indexOf("Why") < shown.indexOf("Controllers"));
});

/** Axe's findings on the page as it is. */
const violations = async () => {
  await page.evaluate(axe + ";0");
  return page.evaluate(`axe.run(document, { resultTypes: ["violations"] }).then((r) => r.violations.map((v) =>
    v.id + ": " + v.nodes.slice(0, 3).map((n) => n.target + " " + n.failureSummary).join(" | ")))`);
};

/** Keeps screenshots of the page as it is, in light and dark and on a phone, and checks it in each. */
const keepAll = async (name) => {
  for (const scheme of ["light", "dark"]) {
    await page.scheme(scheme);
    await keep(`${name}-${scheme}`);
    assert.deepEqual(await violations(), [], `${name} (${scheme})`);
  }
  await page.scheme("light");
  await page.size(...PHONE, true);
  assert.ok(await page.evaluate("document.documentElement.scrollWidth") <= PHONE[0], `${name} is too wide for a phone`);
  await keep(`${name}-phone`);
  await page.size(...DESKTOP);
};

const submit = (id) => page.loads(() => page.evaluate(`document.getElementById(${JSON.stringify(id)}).click()`));
const fill = (id, value) => page.evaluate(`document.getElementById(${JSON.stringify(id)}).value = ${JSON.stringify(value)}`);

test("an edit is compared with what is, and nothing is written", async () => {
  await open(PAGES.deployment);
  await page.loads(() => page.evaluate("document.querySelector('a[href^=\"/edit/\"]').click()"));
  const yaml = await page.evaluate("document.getElementById('yaml-text').value");
  assert.match(yaml, /replicas: 3/);
  await fill("yaml-text", yaml.replace("replicas: 3", "replicas: 5").replace(/image: "?nginx"?/, "image: nginx:2"));
  await submit("compare");
  const shown = await text();
  for (const wanted of [/spec\.replicas\s+3\s+5\s+the edit/, /containers\[name=web\]\.image/, /deployment-controller/, /After the edit/]) {
    assert.match(shown, wanted);
  }
  assert.ok(await page.evaluate("document.querySelectorAll('.compared.differs ins').length") > 0, shown);
  await keepAll("edit-compared");
  await fill("yaml-text", yaml.replace("replicas: 3", "replicas: -3"));
  await submit("compare");
  assert.match(await text(), /The edit would be refused[\s\S]*spec\.replicas/);
  await keepAll("edit-refused");
  await open("/edit/core/v1/pods/shop/important");
  const pod = await page.evaluate("document.getElementById('yaml-text').value");
  await fill("yaml-text", pod.replace("spec:\n", "spec:\n  nodeSelector: {disk: fast}\n"));
  await submit("compare");
  assert.match(await text(), /What the scheduler would do[\s\S]*NodeAffinity/);
  await keepAll("edit-pod");
  await open(PAGES.deployment);
  assert.doesNotMatch(await text(), /nginx:2/, "nothing is written");
});

test("a what-if runs on a copy, and has a report with a timeline", async () => {
  await open(PAGES.whatif);
  await page.evaluate("document.querySelector('input[name=drain][value=\"node-1\"]').click()");
  await fill("duration", "soon");
  await submit("run");
  assert.match(await text(), /virtual time/);
  assert.ok(await page.evaluate("document.querySelector('input[name=drain][value=\"node-1\"]').checked"), "the form is kept");
  await keepAll("whatif-refused");
  await fill("duration", "2h");
  await submit("run");
  await page.until("document.querySelector('#runs a.button') !== null", 120_000);
  assert.match(await text(), /drain node-1; 2h[\s\S]*simulated/);
  await keepAll("whatif-done");
  await page.loads(() => page.evaluate("document.querySelector('#runs a.button').click()"));
  assert.match(await page.evaluate("document.body.innerText"), /drain[\s\S]*node-1/);
  assert.ok(await page.evaluate("document.querySelectorAll('.tile').length") > 3, "the report has no style or content");
  assert.deepEqual(await violations(), []);
  await keep("whatif-report");
  await open(PAGES.whatif);
  await fill("duration", "31d");
  await page.evaluate("document.querySelector('input[name=drain][value=\"node-2\"]').click()");
  await submit("run");
  await keepAll("whatif-running");
  if (await page.evaluate("document.querySelector('[id^=cancel-]') !== null")) {
    await submit("cancel-2");
    await page.until("/It was cancelled/.test(document.getElementById('main').innerText) || document.querySelectorAll('#runs a.button').length === 2", 120_000);
  }
});

test("the simulation's switches change faults, Behaviors and the time", async () => {
  await open(PAGES.simulation);
  await fill("place", "node-3");
  await fill("lasts", "2m");
  await submit("do-fault");
  await page.until("/silent/.test(document.getElementById('faults').innerText)");
  await page.loads(() => page.evaluate("document.querySelector('#behaviors button').click()"));
  await page.until("document.querySelector('#behaviors button').getAttribute('aria-checked') === 'false'");
  await keepAll("simulation-faults");
  await page.loads(() => page.evaluate("document.querySelector('#faults form button').click()"));
  await page.until("/No node has a fault/.test(document.getElementById('faults').innerText)");
  await page.loads(() => page.evaluate("document.querySelector('#behaviors button').click()"));
  const before = new Date(await page.evaluate("document.querySelector('.clock time').dateTime"));
  await fill("jump", "10m");
  await submit("do-jump");
  await page.until(`new Date(document.querySelector('.clock time').dateTime) - ${before.getTime()} >= 600000`, 60_000);
});

test("hostile names and annotations are text", async () => {
  await open("/object/core/v1/pods/shop/hostile");
  await page.evaluate("document.getElementById('yaml').open = true");
  assert.match(await text(), /<script>window\.hacked = 1<\/script>/);
  assert.equal(await page.evaluate("window.hacked"), undefined);
});

for (const scheme of ["light", "dark"]) {
  test(`axe finds nothing on any page (${scheme})`, async () => {
    await page.scheme(scheme);
    const found = [];
    for (const [name, path] of Object.entries(PAGES)) {
      await open(path);
      await page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true");
      await keep(`${name}-${scheme}`);
      for (const violation of await violations()) found.push(`${name}: ${violation}`);
    }
    assert.deepEqual(found, []);
    await page.scheme("light");
  });
}

test("nothing overflows on a phone", async () => {
  await page.size(...PHONE, true);
  const wide = [];
  for (const [name, path] of Object.entries(PAGES)) {
    await open(path);
    await page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true");
    const width = await page.evaluate("document.documentElement.scrollWidth");
    if (width > PHONE[0]) wide.push(`${name}: ${width}`);
    await keep(`${name}-phone`);
  }
  await page.size(...DESKTOP);
  assert.deepEqual(wide, []);
});

test("the keyboard reaches everything, and the focus is seen", async () => {
  for (const path of [PAGES.overview, PAGES.pods, PAGES.node, PAGES.scheduling, PAGES.edit, PAGES.whatif, PAGES.simulation]) {
    await open(path);
    const total = await page.evaluate("document.querySelectorAll('a[href], button:not([hidden]), input:not([type=hidden]), select, textarea:not([hidden]), summary').length");
    const seen = new Set();
    for (let presses = 0; presses < Math.min(total, 60); presses++) {
      await page.press("Tab");
      const focus = await page.evaluate(`(() => {
        const e = document.activeElement, style = getComputedStyle(e), box = e.getBoundingClientRect();
        return { name: e.tagName + " " + (e.id || e.textContent.trim()).slice(0, 40), outline: style.outlineStyle, width: parseFloat(style.outlineWidth),
          inSight: box.width > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0 };
      })()`);
      if (focus.name.startsWith("BODY")) break;
      seen.add(focus.name);
      assert.ok(focus.outline !== "none" && focus.width >= 2 && focus.inSight, `${path}: ${JSON.stringify(focus)}`);
      if (presses === 0) assert.match(focus.name, /Skip to the content/);
    }
    assert.ok(seen.size >= 8, `${path}: only ${[...seen].join(", ")}`);
  }
});

const logIn = async (token) => {
  await open("/login");
  await page.evaluate(`document.getElementById("bearer").value = ${JSON.stringify(token)}`);
  await page.loads(() => page.evaluate('document.querySelector(".login button").click()'));
};

test("a user sees what the user may see, until the log-out", async () => {
  await logIn("guessed");
  assert.match(await text(), /does not accept this token/);
  await keep("login-refused");
  await logIn("token-of-ann");
  assert.equal(await page.evaluate("location.href"), `${base}/`, "the token is not in the address");
  assert.equal(await page.evaluate("document.cookie"), "", "no script reads the cookie");
  assert.match(await page.evaluate("document.querySelector('.viewer').innerText"), /ann/);
  assert.match(await text(), /User ann may not list nodes/);
  await keep("user-overview");
  await open("/objects?kind=pods&namespace=shop");
  assert.match(await text(), /huge/);
  await open(PAGES.pod);
  assert.match(await text(), /it is not scheduled[\s\S]*User ann may not get \/debug\/controllers|User ann may not get \/debug\/controllers[\s\S]*it is not scheduled/);
  await keep("user-pod");
  for (const [path, refusal] of Object.entries({
    "/objects?kind=pods": /User ann may not list pods\./,
    "/objects?kind=pods&namespace=kube-system": /User ann may not list pods in namespace kube-system/,
    "/object/core/v1/secrets/shop/password": /User ann may not get secrets password in namespace shop/,
    [PAGES.scheduling]: /User ann may not list nodes/,
    [PAGES.controller]: /User ann may not get \/debug\/controllers/,
  })) {
    await open(path);
    assert.match(await text(), refusal, path);
    assert.equal(await page.evaluate(axe + "; axe.run(document).then((r) => r.violations.map((v) => v.id).join())"), "", path);
  }
  await page.size(...PHONE, true);
  await open("/objects?kind=pods");
  assert.ok(await page.evaluate("document.documentElement.scrollWidth") <= PHONE[0], "too wide for a phone");
  await keep("user-refused-phone");
  await page.size(...DESKTOP);
  await keep("user-refused");
  // The form of the refused page leads to a namespace.
  await page.evaluate("document.querySelector('#main input[name=namespace]').value = 'shop'");
  await page.loads(() => page.evaluate("document.querySelector('#main form button').click()"));
  assert.match(await text(), /huge/);
  await page.loads(() => page.evaluate("document.getElementById('logout').click()"));
  assert.equal(await page.evaluate("location.href"), `${base}/login`);
  await open("/");
  assert.match(await text(), /evenkeel console/);
  await page.open(CONSOLE_URL);
  assert.match(await text(), /5 \/ 5\s+nodes Ready/, "the URL lets the administrator in again");
});

test("an open page of a user who was logged out leads to the log-in", async () => {
  await logIn("token-of-ann");
  await open("/objects?kind=pods&namespace=shop");
  await page.evaluate(`fetch("/logout", {
    method: "POST", redirect: "manual",
    body: new URLSearchParams({ token: document.querySelector(".viewer input").value }),
  }).then(() => true)`);
  await page.until("document.querySelector('#lost a')?.getAttribute('href') === '/login'", 60_000);
  assert.match(await page.evaluate("document.getElementById('lost').innerText"), /^ann is no longer logged in/);
  await page.open(CONSOLE_URL);
});

test("updates can be paused, by keyboard too", async () => {
  await open(PAGES.overview);
  await page.evaluate("document.getElementById('pause').focus()");
  await page.press("Enter");
  assert.equal(await page.evaluate("document.getElementById('pause').getAttribute('aria-pressed')"), "true");
});

test("a page says that its cluster does not answer, and that it answers again", async () => {
  await open(PAGES.overview);
  const shown = "!document.getElementById('lost').hidden";
  assert.equal(await page.evaluate(shown), false);
  const reported = page.errors.length;
  const offline = (is) => page.send("Network.emulateNetworkConditions", { offline: is, latency: 0, downloadThroughput: -1, uploadThroughput: -1 });
  await offline(true);
  // The stream that is open stays open: the next one cannot be opened.
  for (let presses = 0; presses < 2; presses++) await page.evaluate("document.getElementById('pause').click()");
  await page.until(shown);
  assert.match(await page.evaluate("document.getElementById('lost').innerText"),
    /^No connection to the cluster console since \d\d:\d\d\. It may have stopped: evenkeel list$/);
  assert.ok(await page.evaluate("document.body.classList.contains('stale')"));
  await keep("lost");
  await offline(false);
  await page.until("document.getElementById('lost').hidden && !document.body.classList.contains('stale')");
  // The browser reports each request that had no answer.
  page.errors.length = reported;
});

test("no page reported an error, and no request left the host", () => {
  const other = page.requests.filter((url) => !url.startsWith(`${base}/`) && !url.startsWith("data:"));
  assert.deepEqual(other, []);
  // A page that does not exist is answered with 404, which the browser reports.
  // So are pages that a user may not see, and a wrong token.
  const expected = /\/shop\/nobody|status of 40[13] /;
  const errors = page.errors.filter((error) => !expected.test(error));
  assert.deepEqual(errors, []);
});
