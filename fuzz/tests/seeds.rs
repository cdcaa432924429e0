//! Every target over its seeds, and over some noise made of them.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;

use proptest::prelude::*;

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("seeds")
        .join(target);
    let entries =
        fs::read_dir(&directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
    let seeds: Vec<_> = entries
        .map(|entry| fs::read(entry.unwrap().path()).unwrap())
        .collect();
    assert!(!seeds.is_empty(), "{target} has no seeds");
    seeds
}

#[test]
fn every_seed_holds() {
    for (name, target) in shoal_fuzz::TARGETS {
        seeds(name).iter().for_each(|seed| target(seed));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_seed_holds_with_damage(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        for (name, target) in shoal_fuzz::TARGETS {
            for mut seed in seeds(name) {
                if !seed.is_empty() {
                    let place = at.index(seed.len());
                    seed[place] = byte;
                    target(&seed);
                    seed.truncate(cut.index(seed.len()));
                }
                target(&seed);
            }
        }
    }
}
