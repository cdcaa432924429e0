//! Random bytes from the kernel, which differ in every clone of a sandbox.

/// An array of random bytes.
pub(crate) fn bytes<const COUNT: usize>() -> [u8; COUNT] {
    let mut bytes = [0; COUNT];
    // `getrandom` neither fails nor returns short for so few bytes on supported kernels.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    bytes
}

/// A random UUID (version 4).
pub(crate) fn uuid() -> String {
    let mut bytes = bytes::<16>();
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let mut id = hex::encode(bytes);
    for place in [20, 16, 12, 8] {
        id.insert(place, '-');
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_well_formed_and_unique() {
        let id = uuid();
        let lengths: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!(id.as_bytes()[14], b'4');
        assert!(b"89ab".contains(&id.as_bytes()[19]));
        assert_ne!(id, uuid());
    }
}
