use super::*;

#[test]
fn keys_are_qualified_names() {
    for key in ["a", "A_b.c-1", "shoal/runtime", "example.org/x"] {
        assert!(is_key(key), "{key}");
    }
    let long = "a".repeat(64);
    for key in [
        "",
        "odd key&=",
        "a/b/c",
        "/a",
        "a/",
        "A.org/x",
        "-a",
        "ä",
        long.as_str(),
    ] {
        assert!(!is_key(key), "{key}");
    }
    assert!(is_label_value("") && is_label_value("v1.2") && !is_label_value("two words"));
}

#[test]
fn long_names_are_cut_to_label_values() {
    assert_eq!(label_value("short"), "short");
    let (one, other) = (label_value(&"a".repeat(200)), label_value(&"a".repeat(201)));
    assert_eq!(one.len(), 63);
    assert_ne!(one, other);
}
