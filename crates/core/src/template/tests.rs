use super::*;

#[test]
fn a_reference_is_trimmed_lowered_and_split() {
    let all: TemplateRef = " Acme/Base:V1.2 ".parse().unwrap();
    assert_eq!(all.namespace.as_deref(), Some("acme"));
    assert_eq!(all.name.as_str(), "base");
    assert_eq!(all.tag.as_deref(), Some("v1.2"));
    assert_eq!(all.to_string(), "acme/base:v1.2");
    let bare: TemplateRef = "base".parse().unwrap();
    assert_eq!((bare.namespace, bare.tag), (None, None));
}

#[test]
fn an_invalid_reference_is_refused() {
    let long = "a".repeat(129);
    let uuid_tag = "base:6b2f3c1e-9d1c-4d0e-8f5a-0c1d2e3f4a5b";
    for bad in [
        "", "a b", "a/b/c", "a:", ":a", "/a", "a/", "ä", "a:b:c", &long, uuid_tag,
    ] {
        assert!(bad.parse::<TemplateRef>().is_err(), "{bad:?}");
    }
}

#[test]
fn a_key_is_a_reference_or_a_name_of_the_catalogue() {
    let key: TemplateKey = " faas-code-python.3.11 ".parse().unwrap();
    assert_eq!(key.as_str(), "faas-code-python.3.11");
    assert!(key.reference().is_err());
    let key: TemplateKey = "Acme/Base:v1".parse().unwrap();
    assert_eq!(key.reference().unwrap().to_string(), "acme/base:v1");
    for bad in ["", " ", "a b", "ä", "a%2f", &"a".repeat(513)] {
        assert!(bad.parse::<TemplateKey>().is_err(), "{bad:?}");
    }
}

#[test]
fn a_runtime_name_is_short_and_plain() {
    assert!("runsc".parse::<RuntimeName>().is_ok());
    for bad in ["", "Runsc", "../runsc", "runsc --flag"] {
        assert!(bad.parse::<RuntimeName>().is_err(), "{bad:?}");
    }
}
