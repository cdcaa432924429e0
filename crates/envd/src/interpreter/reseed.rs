//! Code that reseeds random number generators in kernels whose memory was cloned.
//!
//! Generators that read from the system need no reseeding: `secrets`, `uuid4`, Java's
//! `SecureRandom`, Bash's `SRANDOM`. Generator objects of a program (`random.Random()`,
//! `numpy.random.default_rng()`) are left alone, because they may be seeded on purpose.

use super::variables::{Change, Dialect};

/// Temporary name in a Python kernel while our code runs.
pub(super) const TEMP_NAME: &str = "__shoal";

/// Python code that leaves no name behind and relies on none that a user can shadow: `import` is a
/// keyword.
pub(super) fn python(import: &str, code: &str) -> String {
    format!("{import}\ntry:\n    {code}\nfinally:\n    del {TEMP_NAME}")
}

impl Dialect {
    /// Changes that reseed a kernel's generators, one each. Seeds come from the daemon where the
    /// language's own entropy was cloned too.
    pub(super) fn reseed(self, seed: [u32; 4]) -> Vec<Change> {
        let [a, b, ..] = seed;
        let wide = u64::from(a) << 32 | u64::from(b);
        match self {
            Self::Python => of_python(),
            Self::Script => vec![
                Change::new("Math.random", math_random(seed)),
                Change::new("crypto", drawn(CRYPTO)).with_fallback(Some(drawn(FALLBACK_CRYPTO))),
            ],
            // 32 bits without the sign.
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

/// Reseeds Python's global generators, if loaded. OpenSSL reseeds itself from the system when
/// entropy is added.
fn of_python() -> Vec<Change> {
    let loaded = |module: &str, code: &str| {
        let code =
            format!("if {module:?} in {TEMP_NAME}.modules: {TEMP_NAME}.modules[{module:?}].{code}");
        Change::new(module, python(&format!("import sys as {TEMP_NAME}"), &code))
    };
    let bytes = format!("RAND_add({TEMP_NAME}.modules[\"posix\"].urandom(32), 32.0)");
    vec![
        loaded("random", "seed()"),
        loaded("numpy.random", "seed()"),
        loaded("torch", "seed()"),
        loaded("_ssl", &bytes),
    ]
}

/// `Math.random` cannot be seeded, so it is replaced by sfc32.
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

/// Deno's and node's `crypto` generators reseed from the system after every 64 KiB. There is one
/// per thread; this draws twice as much.
fn drawn(crypto: &str) -> String {
    format!(
        "{{ const drawn = new globalThis.Uint8Array(65536);\n\
         const crypto = {crypto};\n\
         for (let i = 0; i < 2; i++) crypto.getRandomValues(drawn);\n\
         void 0; }}"
    )
}

/// Deno's `crypto`, without the global name, which a user may shadow.
const CRYPTO: &str = "(await import(\"node:crypto\")).webcrypto";

/// The same for kernels without top-level `await`: node has one or the other.
const FALLBACK_CRYPTO: &str = "globalThis.crypto\n\
    ?? globalThis.process.getBuiltinModule(\"node:crypto\").webcrypto";

/// Java's generators are accessible through `Unsafe` only.
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

/// Seeds of existing threads, and the sources of seeds for new threads and objects.
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
    use super::super::variables::tests::{ran, run_without_await};
    use super::*;

    /// All changes joined.
    fn code(dialect: Dialect, seed: [u32; 4]) -> String {
        dialect.join_all(dialect.reseed(seed).iter())
    }

    #[test]
    fn python_is_reseeded_and_no_name_remains() {
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
    fn javascript_without_await_is_reseeded() {
        let draw = |seed| {
            let code = Dialect::Script.reseed(seed);
            let code = Dialect::Script.join_fallbacks(code.iter()).unwrap();
            run_without_await(&code, "process.stdout.write(`${Math.random()}`)")
        };
        assert_eq!(draw([1; 4]), draw([1; 4]));
        assert_ne!(draw([1; 4]), draw([2; 4]));
    }

    #[test]
    fn bash_seeds_have_more_than_fifteen_bits() {
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
