/**
 * Evaluates the formulas that Python exported as trees of integers: limits, cliffs and the
 * tutorial's formula. No code here depends on a GPU.
 *
 * A usage has the fields of Python's Resources, null if not given. An architecture has
 * `family` (its formulas), `numbers` (its limits) and words.
 */

const OPERATIONS = {
  "+": (a, b) => a + b,
  "-": (a, b) => a - b,
  "*": (a, b) => a * b,
  "//": (a, b) => Math.floor(a / b),
  "<": (a, b) => Number(a < b),
  "<=": (a, b) => Number(a <= b),
  "==": (a, b) => Number(a === b),
  "|": (a, b) => Number(Boolean(a || b)),
};

/** Return a function from the index of a node to its number, which is evaluated only once. */
function reader(family, usage, numbers) {
  const known = new Float64Array(family.nodes.length).fill(NaN);
  const read = (place) => {
    if (known[place] === known[place]) return known[place];
    const node = family.nodes[place];
    let value = node;
    if (typeof node === "string") {
      value = node[0] === "u" ? usage[node.slice(2)] : numbers[node.slice(2)];
    } else if (typeof node === "object") {
      const [sign, a, b, c] = node;
      value = sign === "?" ? read(read(a) ? b : c) : OPERATIONS[sign](read(a), read(b));
    }
    known[place] = value;
    return value;
  };
  return read;
}

/** Return the optional fields that *usage* has, by the name that the formulas use. */
function wayOf(family, usage) {
  return family.optional.filter((name) => usage[name] !== null).join("+");
}

/** Return the programs that *rule* allows; Infinity for no limit, null if it does not apply. */
function allowedBy(rule, family, way, read) {
  const work = rule.work[way];
  if (work === null) return null;
  const programs = read(work.programs);
  return programs === family.unlimited ? Infinity : programs;
}

/** Return the programs per multiprocessor. */
export function programsOf(architecture, usage, numbers = architecture.numbers) {
  const { family } = architecture;
  const read = reader(family, usage, numbers);
  const way = wayOf(family, usage);
  let least = Infinity;
  for (const rule of family.rules) {
    const programs = allowedBy(rule, family, way, read);
    if (programs !== null && programs < least) least = programs;
  }
  return least;
}

/** Return "1 program", "2 programs". */
export function count(number, word) {
  return number === 1 ? `${number} ${word}` : `${number} ${word}s`;
}

/** Return *template* with each {name} filled in, and each {name:word} as a count of words. */
export function fill(template, words) {
  return template.replace(/\{(\w+)(?::([^}]+))?\}/g, (_, name, word) =>
    word ? count(words[name], word) : String(words[name] ?? ""),
  );
}

/**
 * Return the occupancy: programs, limiters, and each limit with its numbers and its arithmetic in
 * words. A limit that does not apply has programs null.
 */
export function occupancyOf(architecture, usage) {
  const { family, numbers } = architecture;
  const read = reader(family, usage, numbers);
  const limits = [];
  for (const rule of family.rules) {
    const work = rule.work[wayOf(family, usage)];
    if (work === null) continue;
    const named = { ...numbers, ...usage };
    for (const [name, place] of Object.entries(work)) {
      named[name] = typeof place === "string" ? place : read(place);
    }
    const met = named.programs !== family.unlimited;
    limits.push({
      resource: rule.resource,
      programs: met ? named.programs : null,
      steps: met ? rule.steps.map((step) => fill(step, named)) : [],
      numbers: named,
    });
  }
  const programs = Math.min(...limits.map((one) => one.programs ?? Infinity));
  const limiters = limits.filter((one) => one.programs === programs).map((one) => one.resource);
  const warps = programs * usage.num_warps;
  return {
    programs,
    limits,
    limiters,
    warps,
    maxWarps: numbers.max_warps,
    numWarps: usage.num_warps,
  };
}

/** Return *usage* with *amount* of *resource*. */
export function usageWith(usage, resource, amount) {
  if (resource === "registers") return { ...usage, n_regs: amount, allocated_vgprs: null };
  return { ...usage, [resource]: amount };
}

/** Return the resources that a kernel can use more or less of, with [used, maximum]. */
export function amountsOf(architecture, usage) {
  const { family, numbers } = architecture;
  // A kernel that takes no tensor memory can take no less of it.
  const asked = { ...usage, tensor_memory: usage.tensor_memory || null };
  const read = reader(family, asked, numbers);
  const pairs = Object.entries(family.amounts[wayOf(family, asked)]);
  return Object.fromEntries(pairs.map(([name, [used, most]]) => [name, [read(used), read(most)]]));
}

/** Return the first integer from *low* to *end* for which *past* holds; *end* if none does. */
function firstPast(low, end, past) {
  let high = end;
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if (past(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Return the cliff on either side for each resource, like Python's next_steps. */
export function nextStepsOf(architecture, usage) {
  const { family, numbers } = architecture;
  const found = occupancyOf(architecture, usage);
  const amounts = amountsOf(architecture, usage);
  const full = found.limiters.some((name) => !(name in amounts));
  return Object.entries(amounts).map(([resource, [now, most]]) => {
    const rule = family.rules.find((one) => one.resource === resource);
    const allowed = (amount) => {
      const asked = usageWith(usage, resource, amount);
      return allowedBy(rule, family, wayOf(family, asked), reader(family, asked, numbers));
    };
    const first = resource === "registers" ? 1 : 0;
    const tooMany = firstPast(first, most + 1, (amount) => allowed(amount) < found.programs + 1);
    const more = tooMany > first && !full ? tooMany - 1 : null;
    const fewer = firstPast(first, most + 1, (amount) => allowed(amount) < found.programs);
    const asks = resource === "registers" && more !== null && more < now;
    return {
      resource,
      now,
      more,
      fewer: fewer <= most ? fewer : null,
      most,
      option: asks ? optionOf(architecture, usageWith(usage, resource, more)) : null,
    };
  });
}

function optionOf(architecture, usage) {
  const read = reader(architecture.family, usage, architecture.numbers);
  return architecture.family.option.replace(/\{(\d+)\}/, (_, place) => read(Number(place)));
}

/** Return the programs with every limiter at its next step; null if one has no step. */
export function programsAfter(steps, architecture, usage) {
  let asked = usage;
  for (const resource of occupancyOf(architecture, usage).limiters) {
    const amount = steps.find((step) => step.resource === resource)?.more ?? null;
    if (amount === null) return null;
    asked = usageWith(asked, resource, amount);
  }
  return programsOf(architecture, asked);
}

/** Return the programs of the tutorial's formula; null if it divides by 0. */
export function tutorialPrograms(architecture, usage) {
  const { family, numbers } = architecture;
  const read = reader(family, usage, numbers);
  if (read(family.tutorial_fails)) return null;
  const allowed = family.tutorial.map((rule) => read(rule.work[""].programs));
  return Math.min(...allowed);
}

/** Return the names of the fewest terms that correct a formula without any of them. */
export function missingTerms(architecture, usage) {
  const { terms } = architecture.family;
  const truth = programsOf(architecture, usage);
  for (let count = 0; count <= terms.length; count += 1) {
    for (const restored of choices(terms.length, count)) {
      const hidden = terms.filter((_, place) => !restored.includes(place));
      if (programsWithout(hidden, architecture, usage) === truth) {
        return restored.map((place) => terms[place].name);
      }
    }
  }
  throw new Error("putting every term back gives the truth");
}

function programsWithout(terms, architecture, usage) {
  let numbers = architecture.numbers;
  let asked = usage;
  for (const term of terms) {
    const read = reader(architecture.family, asked, numbers);
    const changed = (places) =>
      Object.fromEntries(
        Object.entries(places).map(([name, place]) => [name, place === null ? null : read(place)]),
      );
    [asked, numbers] = [
      { ...asked, ...changed(term.usage) },
      { ...numbers, ...changed(term.architecture) },
    ];
  }
  return programsOf(architecture, asked, numbers);
}

/** Yield every choice of *count* indices below *length*, in itertools.combinations' order. */
function* choices(length, count, first = 0) {
  if (count === 0) {
    yield [];
    return;
  }
  for (let place = first; place <= length - count; place += 1) {
    for (const rest of choices(length, count - 1, place + 1)) yield [place, ...rest];
  }
}

/**
 * Return the staircase of *resource*: [amount, programs] wherever the programs change, from 1 to
 * *most*. Programs never increase with the amount, so each edge is found by bisection.
 */
export function staircase(architecture, usage, resource, most, programs = programsOf) {
  const at = (amount) => programs(architecture, usageWith(usage, resource, amount));
  const stairs = [];
  let amount = 1;
  while (amount <= most) {
    const here = at(amount);
    stairs.push([amount, here]);
    amount = firstPast(amount + 1, most + 1, (other) => at(other) !== here);
  }
  return stairs;
}
