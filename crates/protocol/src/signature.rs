//! Signed URLs: permission to read or write one path without the token.
//!
//! A signature is derived from the token, so it is verified by the daemon, and by the gateway,
//! which finds the sandbox of a signed URL by trying all tokens it holds. (A URL built with
//! `E2B_SANDBOX_URL` names no sandbox.)

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Prefix of signatures, with the version of the scheme.
const PREFIX: &str = "v1_";

/// Length of a signature without its prefix.
const ENCODED: usize = 43;

/// The permitted operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// `GET /files`.
    Read,
    /// `POST /files`.
    Write,
}

/// Signed fields, percent-decoded from the query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim<'a> {
    /// `path`; empty when absent.
    pub path: &'a str,
    /// From the request's method.
    pub operation: Operation,
    /// `username`; empty if absent, which means the default user.
    pub username: &'a str,
    /// `signature_expiration`: the last valid Unix second; unlimited if absent.
    pub expiration: Option<i64>,
}

/// Why a signature is rejected. The texts are E2B's: clients compare them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSignature {
    /// No signature given.
    #[error("missing signature query parameter")]
    Missing,
    /// Wrong token or claim.
    #[error("invalid signature")]
    Mismatch,
    /// Genuine but expired.
    #[error("signature is already expired")]
    Expired,
}

impl Operation {
    /// The operation in the signed text.
    fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// A claim hashed as far as possible without a token, so that trying a further token takes constant
/// time regardless of the path's length.
#[derive(Debug, Clone)]
pub struct Prepared {
    hashed: Sha256,
    /// Signed text after the token.
    rest: String,
}

impl Prepared {
    /// Prepares a claim.
    #[must_use]
    pub fn new(claim: &Claim<'_>) -> Self {
        let mut hashed = Sha256::new();
        for part in [claim.path, claim.operation.as_str(), claim.username] {
            hashed.update(part);
            hashed.update(":");
        }
        let expiration = claim.expiration.map(|expiration| format!(":{expiration}"));
        Self {
            hashed,
            rest: expiration.unwrap_or_default(),
        }
    }

    /// Verifies a signature of the claim by `token` in constant time.
    #[must_use]
    pub fn is_signed(&self, token: &str, signature: &Signature) -> bool {
        self.digest(token).ct_eq(&signature.0).into()
    }

    fn digest(&self, token: &str) -> [u8; 32] {
        let mut hash = self.hashed.clone();
        hash.update(token);
        hash.update(&self.rest);
        hash.finalize().into()
    }
}

/// A well-formed signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature([u8; 32]);

impl Signature {
    /// Parses a signature. `None` if it is malformed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let encoded = text.strip_prefix(PREFIX)?;
        if encoded.len() > ENCODED {
            return None;
        }
        let digest = STANDARD_NO_PAD.decode(encoded).ok()?;
        digest.try_into().ok().map(Self)
    }
}

/// Parses `signature_expiration` strictly: a sign, blanks or leading zeros would be another text
/// with the same signature.
#[must_use]
pub fn parse_expiration(text: &str) -> Option<i64> {
    let seconds: i64 = text.parse().ok()?;
    (seconds.to_string() == text).then_some(seconds)
}

/// Signs a claim.
#[must_use]
pub fn sign(claim: &Claim<'_>, token: &str) -> String {
    let digest = Prepared::new(claim).digest(token);
    format!("{PREFIX}{}", STANDARD_NO_PAD.encode(digest))
}

/// Verifies a signature at the Unix second `now`.
///
/// # Errors
/// The reason of the rejection. Only a genuine signature is reported as expired.
pub fn verify(
    claim: &Claim<'_>,
    token: &str,
    signature: Option<&str>,
    now: i64,
) -> Result<(), InvalidSignature> {
    let signature = signature.ok_or(InvalidSignature::Missing)?;
    let expected = sign(claim, token);
    if !bool::from(expected.as_bytes().ct_eq(signature.as_bytes())) {
        return Err(InvalidSignature::Mismatch);
    }
    match claim.expiration {
        Some(expiration) if expiration < now => Err(InvalidSignature::Expired),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn claim(path: &str) -> Claim<'_> {
        Claim {
            path,
            operation: Operation::Read,
            username: "",
            expiration: None,
        }
    }

    const TOKEN: &str = "tok123";

    #[test]
    fn an_expiration_has_one_spelling() {
        assert_eq!(parse_expiration("1700000000"), Some(1_700_000_000));
        assert_eq!(parse_expiration("0"), Some(0));
        assert_eq!(parse_expiration("-5"), Some(-5));
        for bad in [
            "",
            "+5",
            "05",
            "-0",
            "-05",
            " 5",
            "5 ",
            "5\0",
            "0x5",
            "5.0",
            "5e3",
            "\u{665}",
            "9223372036854775808",
        ] {
            assert_eq!(parse_expiration(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_vector_of_the_specification_holds() {
        assert_eq!(
            sign(&claim("a"), TOKEN),
            "v1_Kvu+IViIXi/QoKRKhduH4tRCWgTH2sKkharnzD35sDA"
        );
    }

    #[test]
    fn what_is_prepared_finds_the_token_that_signed() {
        let claim = Claim {
            expiration: Some(100),
            ..claim("a:b")
        };
        let signature = Signature::parse(&sign(&claim, TOKEN)).unwrap();
        let prepared = Prepared::new(&claim);
        assert!(prepared.is_signed(TOKEN, &signature));
        assert!(!prepared.is_signed("tok124", &signature));
        for bad in [
            "",
            "v1_",
            "v1_Kvu",
            "v2_Kvu+IViIXi/QoKRKhduH4tRCWgTH2sKkharnzD35sDA",
        ] {
            assert_eq!(Signature::parse(bad), None, "{bad}");
        }
        assert_eq!(
            Signature::parse(&format!("v1_{}", "A".repeat(1 << 20))),
            None
        );
    }

    #[test]
    fn a_signature_expires_after_its_last_second() {
        let claim = Claim {
            expiration: Some(100),
            ..claim("a")
        };
        let signature = sign(&claim, TOKEN);
        let verify = |now| verify(&claim, TOKEN, Some(&signature), now);
        assert_eq!(verify(100), Ok(()));
        assert_eq!(verify(101), Err(InvalidSignature::Expired));
    }

    #[test]
    fn an_expiration_cannot_be_taken_off_or_moved() {
        let signed = Claim {
            expiration: Some(100),
            ..claim("a")
        };
        let signature = sign(&signed, TOKEN);
        for expiration in [None, Some(101)] {
            let claim = Claim {
                expiration,
                ..signed
            };
            assert_eq!(
                verify(&claim, TOKEN, Some(&signature), 0),
                Err(InvalidSignature::Mismatch)
            );
        }
    }

    #[test]
    fn a_missing_signature_is_told_from_a_wrong_one() {
        assert_eq!(
            verify(&claim("a"), TOKEN, None, 0),
            Err(InvalidSignature::Missing)
        );
        assert_eq!(
            verify(&claim("a"), TOKEN, Some(""), 0),
            Err(InvalidSignature::Mismatch)
        );
    }

    proptest! {
        #[test]
        fn a_signature_is_for_one_path_user_and_operation(
            path in "[a-z/]{0,8}", other in "[a-z/]{0,8}", user in "[a-z]{0,4}",
        ) {
            let signed = Claim { username: &user, ..claim(&path) };
            let signature = sign(&signed, TOKEN);
            prop_assert!(verify(&signed, TOKEN, Some(&signature), 0).is_ok());
            let writes = Claim { operation: Operation::Write, ..signed };
            prop_assert!(verify(&writes, TOKEN, Some(&signature), 0).is_err());
            if path != other {
                let elsewhere = Claim { path: &other, ..signed };
                prop_assert!(verify(&elsewhere, TOKEN, Some(&signature), 0).is_err());
            }
        }
    }
}
