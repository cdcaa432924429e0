//! Code after which chance is another, for kernels that were cloned with their memory.
//!
//! What the system is asked for each time needs none of it: `secrets`, `uuid4`, Java's `SecureRandom`,
//! Bash's `SRANDOM`. Objects that a program has made for itself (`random.Random()`,
//! `numpy.random.default_rng()`) stay as they are: nobody knows whether they were meant to be
//! repeated.

use super::variables::{Change, Dialect};

/// A name that is in a kernel of Python while our code runs.
pub(super) const OURS: &str = "__shoal";

/// Code of Python that leaves no name behind, and uses none that can be hidden: `import` is a word of
/// the language.
pub(super) fn python(import: &str, code: &str) -> String {
    format!("{import}\ntry:\n    {code}\nfinally:\n    del {OURS}")
}

impl Dialect {
    /// What gives a kernel chance of its own, one generator after the other. Seeds come from here
    /// where the language has only those whose state was cloned too.
    pub(super) fn reseed(self, seed: [u32; 4]) -> Vec<Change> {
        let [a, b, ..] = seed;
        let wide = u64::from(a) << 32 | u64::from(b);
        match self {
            Self::Python => of_python(),
            Self::Script => vec![
                Change::new("Math.random", math_random(seed)),
                Change::new("crypto", drawn(CRYPTO)).or(Some(drawn(PLAIN_CRYPTO))),
            ],
            // Of 32 bits without the sign.
            Self::R => vec![Change::new(
                "set.seed",
                format!("base::set.seed({}L)", a >> 1),
            )],
            Self::Bash => vec![Change::new("RANDOM", format!("RANDOM={}", a >> 1))],
            Self::Java => vec![
                Change::new(
                    "Math.random",
                    of_java(&format!("{MATH} generator.setSeed({wide:#x}L);")),
                ),
                Change::new(
                    "ThreadLocalRandom",
                    of_java(&THREADS.replace("SEED", &format!("{wide:#x}L"))),
                ),
            ],
        }
    }
}

/// Where Python keeps generators that all programs share, as far as they are loaded. OpenSSL seeds its
/// own anew, from the system, when something is added.
fn of_python() -> Vec<Change> {
    let loaded = |module: &str, code: &str| {
        let code = format!("if {module:?} in {OURS}.modules: {OURS}.modules[{module:?}].{code}");
        Change::new(module, python(&format!("import sys as {OURS}"), &code))
    };
    let bytes = format!("RAND_add({OURS}.modules[\"posix\"].urandom(32), 32.0)");
    vec![
        loaded("random", "seed()"),
        loaded("numpy.random", "seed()"),
        loaded("torch", "seed()"),
        loaded("_ssl", &bytes),
    ]
}

/// Nothing in the language seeds `Math.random`: another takes its place. This one is sfc32.
fn math_random(seed: [u32; 4]) -> String {
    let [a, b, c, d] = seed;
    format!(
        "{{ let a = {a}, b = {b}, c = {c}, d = {d};\n\
         const step = () => {{ const t = (a + b + (d = d + 1 | 0)) | 0;\n\
         a = b ^ b >>> 9; b = c + (c << 3) | 0; c = (c << 21 | c >>> 11) + t | 0;\n\
         return t >>> 0; }};\n\
         for (let i = 0; i < 16; i++) step();\n\
         globalThis.Math.random = () => ((step() >>> 5) * 67108864 + (step() >>> 6)) / 2 ** 53;\n\
         void 0; }}"
    )
}

/// What Deno's `crypto` and node's draw from seeds itself anew, from the system, after each 64 KiB.
/// They are one generator for each thread; what is drawn here is twice as much.
fn drawn(crypto: &str) -> String {
    format!(
        "{{ const drawn = new globalThis.Uint8Array(65536);\n\
         const crypto = {crypto};\n\
         for (let i = 0; i < 2; i++) crypto.getRandomValues(drawn);\n\
         void 0; }}"
    )
}

/// What Deno has instead of the name `crypto`, which is the user's.
const CRYPTO: &str = "(await import(\"node:crypto\")).webcrypto";

/// The same for kernels whose code cannot wait for anything: node has the one name or the other.
const PLAIN_CRYPTO: &str = "globalThis.crypto\n\
    ?? globalThis.process.getBuiltinModule(\"node:crypto\").webcrypto";

/// Java hides its generators from everybody but `Unsafe`, which is there for those who know.
fn of_java(code: &str) -> String {
    format!(
        "{{ java.lang.reflect.Field only = sun.misc.Unsafe.class.getDeclaredField(\"theUnsafe\");\n\
         only.setAccessible(true);\n\
         sun.misc.Unsafe memory = (sun.misc.Unsafe) only.get(null);\n\
         {code} }}"
    )
}

const MATH: &str = "java.lang.reflect.Field held = java.lang.Class.forName(\n\
    \"java.lang.Math$RandomNumberGeneratorHolder\").getDeclaredField(\"randomNumberGenerator\");\n\
    java.util.Random generator = (java.util.Random) memory.getObject(\n\
    memory.staticFieldBase(held), memory.staticFieldOffset(held));\n";

/// The generators of the threads that there are, and where new ones and new objects get their seeds.
const THREADS: &str = "java.lang.reflect.Field[] seeds = {\n\
    java.util.concurrent.ThreadLocalRandom.class.getDeclaredField(\"seeder\"),\n\
    java.util.Random.class.getDeclaredField(\"seedUniquifier\") };\n\
    long seed = SEED;\n\
    for (java.lang.reflect.Field each : seeds) {\n\
    java.lang.Object held = memory.getObject(memory.staticFieldBase(each), memory.staticFieldOffset(each));\n\
    ((java.util.concurrent.atomic.AtomicLong) held).set(seed += 0x9e3779b97f4a7c15L); }\n\
    long place = memory.objectFieldOffset(java.lang.Thread.class.getDeclaredField(\"threadLocalRandomSeed\"));\n\
    for (java.lang.Thread each : java.lang.Thread.getAllStackTraces().keySet())\n\
    memory.putLong(each, place, seed += 0x9e3779b97f4a7c15L);";

#[cfg(test)]
mod tests {
    use super::super::variables::tests::{ran, ran_plainly};
    use super::*;

    /// All of it in one text.
    fn code(dialect: Dialect, seed: [u32; 4]) -> String {
        dialect.together(dialect.reseed(seed).iter())
    }

    #[test]
    fn python_has_another_chance_with_what_is_loaded_and_without_and_leaves_no_name() {
        let code = code(Dialect::Python, [0; 4]);
        let code = format!(
            "import random\nrandom.seed(1); a = random.random(); random.seed(1)\n\
             names = set(globals()) | {{'names'}}\n{code}\n\
             assert a != random.random() and names == set(globals()), globals()"
        );
        for loaded in ["", "import ssl\n", "__import__ = getattr = None\n"] {
            ran("python3", &["-c", &format!("{loaded}{code}")]);
        }
    }

    #[test]
    fn javascript_that_cannot_wait_has_another_chance_too() {
        let draw = |seed| {
            let code = Dialect::Script.reseed(seed);
            let code = Dialect::Script.plainly_together(code.iter()).unwrap();
            ran_plainly(&code, "process.stdout.write(`${Math.random()}`)")
        };
        assert_eq!(draw([1; 4]), draw([1; 4]));
        assert_ne!(draw([1; 4]), draw([2; 4]));
    }

    #[test]
    fn bash_has_more_beginnings_than_it_has_numbers() {
        let draw = |seed: u32| {
            let code = code(Dialect::Bash, [seed, 0, 0, 0]);
            ran(
                "bash",
                &["-c", &format!("{code}; echo $RANDOM $RANDOM $RANDOM")],
            )
        };
        assert_eq!(draw(2), draw(2));
        assert_ne!(draw(2), draw(2 + (1 << 17)));
    }
}
