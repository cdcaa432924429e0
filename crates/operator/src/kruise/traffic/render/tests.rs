use serde_json::json;

use super::*;

fn rendered(spec: Value) -> Rendered {
    render(&serde_json::from_value(spec).unwrap())
}

fn egress(rules: Value) -> Rendered {
    rendered(json!({"egress": {"rules": rules}}))
}

fn allow(to: Value) -> Value {
    json!({"action": "allow", "to": to})
}

fn reject(to: Value) -> Value {
    json!({"action": "reject", "to": to})
}

#[test]
fn allowances_are_said_as_they_are() {
    let made = rendered(json!({
        "selector": {"matchLabels": {"app": "x"}},
        "egress": {"rules": [
            {"action": "allow", "to": [{"cidr": "10.1.0.0/16"}], "ports": [{"port": 443}, {"protocol": "UDP", "port": 50, "endPort": 60}]},
            {"action": "allow", "to": [{"workload": {"namespace": "db", "selector": {"role": "db"}}}]},
            {"action": "reject"},
            {"action": "allow"},
        ]},
        "ingress": {"rules": []},
    }));
    assert_eq!(
        made.spec,
        json!({
            "podSelector": {"matchLabels": {"app": "x"}},
            "policyTypes": ["Ingress", "Egress"],
            "egress": [
                {"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}],
                 "ports": [{"protocol": "TCP", "port": 443}, {"protocol": "UDP", "port": 50, "endPort": 60}]},
                {"to": [{
                    "podSelector": {"matchLabels": {"role": "db"}},
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "db"}},
                }]},
            ],
        })
    );
    assert!(made.missing.is_empty());
}

#[test]
fn rejected_ranges_are_exceptions_of_what_follows() {
    let made = egress(json!([
        allow(json!([{"cidr": "10.0.0.5/32"}])),
        reject(json!([{"cidr": "10.0.0.0/8"}, {"cidr": "fd00::/8"}])),
        allow(json!([])),
        allow(json!([{"cidr": "10.2.0.0/16"}])),
    ]));
    assert_eq!(
        made.spec["egress"],
        json!([
            {"to": [{"ipBlock": {"cidr": "10.0.0.5/32"}}]},
            {"to": [
                {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}},
                {"ipBlock": {"cidr": "::/0", "except": ["fd00::/8"]}},
            ]},
        ])
    );
    assert!(made.missing.is_empty());
}

#[test]
fn rejections_alone_leave_the_rest_open() {
    let made = egress(json!([reject(json!([{"cidr": "8.8.8.0/24"}]))]));
    let expected = json!([{"to": [
        {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["8.8.8.0/24"]}},
        {"ipBlock": {"cidr": "::/0"}},
    ]}]);
    assert_eq!(made.spec["egress"], expected);
    let nothing = egress(json!([reject(json!([]))]));
    assert_eq!(nothing.spec.get("egress"), None);
    assert_eq!(nothing.spec["policyTypes"], json!(["Egress"]));
}

#[test]
fn what_cannot_be_said_is_told_and_never_allowed() {
    let made = egress(json!([
        allow(json!([{"fqdn": "example.org"}, {"cidr": "1.1.1.1/32"}])),
        {"action": "allow", "to": [{"cidr": "2.2.2.2/32"}], "ports": [{"protocol": "ICMP"}]},
        reject(json!([{"fqdn": "bad.example.org"}])),
        allow(json!([])),
    ]));
    assert_eq!(
        made.spec["egress"],
        json!([{"to": [{"ipBlock": {"cidr": "1.1.1.1/32"}}]}])
    );
    for (missing, part) in made
        .missing
        .iter()
        .zip(["example.org", "ICMP", "those after it"])
    {
        assert!(missing.contains(part), "{missing}");
    }
    assert_eq!(made.missing.len(), 3);
    let pods = json!([{"workload": {"selector": {"a": "b"}}}]);
    let made = egress(json!([
        reject(json!([{"cidr": "10.0.0.0/8"}])),
        allow(pods)
    ]));
    assert_eq!(made.spec.get("egress"), None);
    assert!(made.missing[0].contains("may be in it"));
    let ports = json!([{"action": "reject", "to": [{"cidr": "10.0.0.0/8"}], "ports": [{"port": 22}]}, {"action": "allow"}]);
    let made = egress(ports);
    assert_eq!(made.spec.get("egress"), None);
    assert!(made.missing[0].contains("cannot reject ports"));
}

#[test]
fn a_rule_without_peers_is_one_for_all() {
    assert_eq!(
        egress(json!([allow(json!([]))])).spec["egress"],
        json!([{}])
    );
}

#[test]
fn ranges_contain_smaller_ones_of_their_kind() {
    let range = |text: &str| Range::parse(text).unwrap();
    for (one, other, contains) in [
        ("0.0.0.0/0", "10.0.0.0/8", true),
        ("10.0.0.0/8", "10.255.0.0/16", true),
        ("10.0.0.0/8", "11.0.0.0/8", false),
        ("10.0.0.0/16", "10.0.0.0/8", false),
        ("::/0", "10.0.0.0/8", false),
        ("::/0", "fd00::/8", true),
        ("10.0.0.1/8", "10.9.9.9/32", true),
    ] {
        assert_eq!(
            range(one).contains(&range(other)),
            contains,
            "{one} {other}"
        );
    }
    for text in [
        "",
        "10.0.0.0",
        "10.0.0.0/33",
        "x/8",
        "::/129",
        "10.0.0.0/-1",
    ] {
        assert_eq!(Range::parse(text), None, "{text}");
    }
}
