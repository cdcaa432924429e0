//! Randomness from the system.

use shoal_core::ports::NoEntropy;

/// Fresh random bytes.
///
/// # Errors
/// When the system has none, which does not happen on a working machine after its boot.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], NoEntropy> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| NoEntropy(error.to_string()))?;
    Ok(bytes)
}
