use super::*;

#[test]
fn a_long_message_keeps_its_cause() {
    assert_eq!(shortened("short: no space left"), "short: no space left");
    let long = format!(
        "checkpoint: {}: no space left on device",
        "object ".repeat(500)
    );
    let kept = shortened(&long);
    assert!(kept.starts_with("checkpoint: object"));
    assert!(kept.ends_with(": no space left on device"), "{kept}");
    assert!(kept.chars().count() < 610);
}

#[test]
fn a_state_file_belongs_to_the_sandbox_whose_whole_id_it_holds() {
    for name in [
        "ia",
        "ia_sandbox:ia.state",
        "ia_sandbox:ia.lock",
        "runsc-ia.sock",
    ] {
        assert!(belongs_to(name, "ia"), "{name}");
    }
    for name in ["iab", "iab_sandbox:iab.state", "null-netns", "xia"] {
        assert!(!belongs_to(name, "ia"), "{name}");
    }
}
