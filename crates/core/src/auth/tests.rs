use super::*;

#[test]
fn a_key_is_read_hashed_and_never_printed() {
    let key = ApiKey::from_entropy([0xab; 20]);
    assert_eq!(key.reveal(), format!("e2b_{}", "ab".repeat(20)));
    let again = ApiKey::parse(key.reveal()).unwrap();
    assert_eq!(again.hash(), key.hash());
    assert_eq!(key.hash().as_str().len(), 64);
    assert!(!format!("{key:?}").contains("abab"));
    assert_eq!(key.mask().value_length, 40);
}

#[test]
fn a_text_that_is_not_a_key_is_refused() {
    for bad in [
        "",
        "e2b_",
        "e2b_xyz",
        "sk_ab",
        "e2b_abc",
        &format!("e2b_{}", "ab".repeat(65)),
    ] {
        assert!(ApiKey::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn tokens_are_the_same_each_time_and_differ_by_sandbox_and_use() {
    let seed = TokenSeed::new([1; 32]);
    let (a, b): (SandboxId, SandboxId) = ("ia".parse().unwrap(), "ib".parse().unwrap());
    let token = seed.envd_access_token(&a);
    assert!(token.matches(seed.envd_access_token(&a).reveal()));
    assert!(!token.matches(seed.envd_access_token(&b).reveal()));
    assert!(!token.matches(seed.traffic_access_token(&a).reveal()));
    assert!(!token.matches(""));
    let salts = [[1; 16], [2; 16]].map(TokenSalt::from_entropy);
    let rotated = salts.each_ref().map(|salt| {
        [
            seed.rotated_envd_access_token(&a, salt),
            seed.rotated_traffic_access_token(&a, salt),
            seed.rotated_envd_access_token(&b, salt),
        ]
    });
    let mut all: Vec<&str> = rotated.iter().flatten().map(Token::reveal).collect();
    all.push(token.reveal());
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 7);
}
