//! The contents of a file after an interrupted write in place.
//!
//! A file is written in an order that can be recognised afterwards: first what the new contents have beyond the
//! length of the old ones, then the rest from the beginning, and at last the file is cut to its new length. A mixture that a
//! crash leaves therefore differs from a user's work.

/// Whether `found` can be the result of an interrupted write of `new` over `old`; `None` for a file that was created.
///
/// It is also true of both contents themselves.
#[must_use]
pub fn is_interrupted(old: Option<&[u8]>, new: &[u8], found: &[u8]) -> bool {
    let old = old.unwrap_or_default();
    let common = old.len().min(new.len());
    if found.len() < common {
        return false;
    }
    let (head, tail) = found.split_at(common);
    let (old_head, old_tail) = old.split_at(common);
    let (new_head, new_tail) = new.split_at(common);
    let written = agreeing(head, new_head);
    let mixed = head.get(written..) == old_head.get(written..);
    let begun = agreeing(head, old_head) < common;
    let tail_fits = if tail == new_tail || tail == old_tail {
        // With the new contents longer, the rest is complete before the beginning is touched.
        tail == new_tail || !begun || old.len() > new.len()
    } else {
        new_tail.starts_with(tail) && !begun
    };
    // The cut is last.
    let cut_early = new.len() < old.len() && tail.is_empty() && written < common;
    mixed && tail_fits && !cut_early
}

/// How many bytes both begin with.
fn agreeing(one: &[u8], other: &[u8]) -> usize {
    let pairs = one.iter().zip(other);
    pairs.take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The contents after `steps` written or cut bytes.
    fn left(old: &[u8], new: &[u8], mut steps: usize) -> Vec<u8> {
        let mut file = old.to_vec();
        let common = old.len().min(new.len());
        for byte in &new[common..] {
            if steps == 0 {
                return file;
            }
            file.push(*byte);
            steps -= 1;
        }
        for (place, byte) in new[..common].iter().enumerate() {
            if steps == 0 {
                return file;
            }
            file[place] = *byte;
            steps -= 1;
        }
        if steps > 0 {
            file.truncate(new.len());
        }
        file
    }

    #[test]
    fn another_s_work_is_not_an_interruption() {
        assert!(is_interrupted(Some(b"abcdef"), b"xyz", b"xycdef"));
        assert!(is_interrupted(None, b"xyz", b"xy"));
        for found in [b"ab".as_slice(), b"xYz", b"abcdefg", b"axcdef", b"xyzdeF"] {
            assert!(!is_interrupted(Some(b"abcdef"), b"xyz", found), "{found:?}");
        }
        assert!(
            !is_interrupted(Some(b"ab"), b"xyz", b"xb"),
            "the rest came first"
        );
        assert!(!is_interrupted(None, b"xyz", b"xz"));
    }

    proptest! {
        #[test]
        fn every_interruption_is_recognised(
            old in "[ab]{0,6}", new in "[ab]{0,6}", steps in 0usize..14,
        ) {
            let found = left(old.as_bytes(), new.as_bytes(), steps);
            prop_assert!(is_interrupted(Some(old.as_bytes()), new.as_bytes(), &found));
            prop_assert!(is_interrupted(Some(&found), &found, &found));
        }

        #[test]
        fn only_what_an_interruption_leaves_is_recognised(
            old in "[ab]{0,4}", new in "[ab]{0,4}", found in "[ab]{0,5}",
        ) {
            let (old, new, found) = (old.as_bytes(), new.as_bytes(), found.as_bytes());
            let possible = (0..12).any(|steps| left(old, new, steps) == found);
            prop_assert_eq!(is_interrupted(Some(old), new, found), possible);
        }
    }
}
