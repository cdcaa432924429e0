//! Hashes of names, for labels: a name may be longer than a label's value.

/// 32-bit FNV-1a of the name, as 8 hexadecimal digits.
#[must_use]
pub fn of_name(name: &str) -> String {
    format!("{:08x}", fnv1a(name.as_bytes()))
}

fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_existing_objects() {
        for (name, hash) in [
            ("", "811c9dc5"),
            ("a", "e40c292c"),
            ("my-sandbox", "374de8f5"),
            ("vct-sandbox", "6936fe48"),
            ("test-template", "69155462"),
            ("test-warmpool", "abdcc27b"),
            ("python-sandbox-template", "d274c066"),
        ] {
            assert_eq!(of_name(name), hash, "{name}");
        }
    }
}
