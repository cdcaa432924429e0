use proptest::prelude::*;

use super::*;

fn egress(internet: Option<bool>, allow: &[&str], deny: &[&str]) -> Egress {
    let ranges = |list: &[&str]| list.iter().map(|r| r.parse().unwrap()).collect();
    Egress {
        internet,
        allow: ranges(allow),
        deny: ranges(deny),
        dns_servers: Vec::new(),
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn explicitly_enabled_internet_access_equals_the_default() {
    let rules = |internet| egress(internet, &["8.8.8.8"], &["1.0.0.0/8"]);
    assert!(rules(Some(true)).same_rules(&rules(None)));
    assert!(!rules(Some(false)).same_rules(&rules(None)));
    assert!(!rules(None).same_rules(&egress(None, &["8.8.8.8"], &[])));
    assert!(!rules(None).same_rules(&egress(None, &[], &["1.0.0.0/8"])));
    let named = Egress {
        dns_servers: vec![Ipv4Addr::new(9, 9, 9, 9)],
        ..rules(None)
    };
    assert!(!named.same_rules(&rules(None)));
}

#[test]
fn the_internet_is_open_and_private_ranges_are_not() {
    let open = Egress::default();
    assert!(open.allows(ip("8.8.8.8")));
    for private in [
        "10.0.0.1",
        "100.64.0.1",
        "127.0.0.1",
        "169.254.169.254",
        "172.31.255.255",
        "192.168.1.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fc00::1",
        "fe80::1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "2002:a00:1::",
    ] {
        assert!(!open.allows(ip(private)), "{private}");
    }
}

#[test]
fn public_addresses_are_those_that_the_internet_routes() {
    for public in ["8.8.8.8", "203.0.114.1", "2606:4700::1111", "2a00::1"] {
        assert!(is_public(ip(public)), "{public}");
    }
    for other in [
        "10.79.0.2",
        "192.88.99.1",
        "255.255.255.255",
        "2001::1",
        "2002:7f00:1::",
        "64:ff9b:1::a9fe:a9fe",
        "100::1",
        "4000::1",
        "::ffff:8.8.8.8",
    ] {
        assert!(!is_public(ip(other)), "{other}");
    }
}

#[test]
fn allow_beats_deny_and_nothing_beats_a_blocked_range() {
    let policy = egress(None, &["1.1.1.1", "10.0.0.0/8"], &["0.0.0.0/0"]);
    assert!(policy.allows(ip("1.1.1.1")));
    assert!(!policy.allows(ip("8.8.8.8")));
    assert!(!policy.allows(ip("10.1.2.3")));
}

#[test]
fn without_internet_access_only_allowed_destinations_are_reachable() {
    let policy = egress(Some(false), &["8.8.8.0/24"], &[]);
    assert!(policy.allows(ip("8.8.8.8")));
    assert!(!policy.allows(ip("1.1.1.1")));
    assert!(!policy.is_closed());
    assert!(egress(Some(false), &[], &[]).is_closed());
}

#[test]
fn a_range_displays_as_written_and_host_names_get_their_own_error() {
    for text in ["8.8.8.8", "1.1.1.0/24", "2606:4700::/32"] {
        assert_eq!(text.parse::<AddressRange>().unwrap().to_string(), text);
    }
    assert!(matches!(
        "example.com".parse::<AddressRange>(),
        Err(InvalidRule::Name(_))
    ));
    assert!(matches!(
        "*.example.com".parse::<AddressRange>(),
        Err(InvalidRule::Name(_))
    ));
    for bad in ["8.8.8.8/33", "300.1.1.1", "", "10.0.0.0/", "nonsense"] {
        assert!(
            matches!(bad.parse::<AddressRange>(), Err(InvalidRule::Malformed(_))),
            "{bad}"
        );
    }
}

#[test]
fn a_host_mask_is_a_host() {
    let mask: HostMask = "localhost:${PORT}".parse().unwrap();
    assert_eq!(mask.for_port(8080), "localhost:8080");
    assert!("example.com".parse::<HostMask>().is_ok());
    for bad in [
        "-https://abcd",
        "",
        "a b",
        "a:b",
        "a:0",
        "a\r\nb",
        "${PORT",
        "a/b",
    ] {
        assert!(bad.parse::<HostMask>().is_err(), "{bad:?}");
    }
}

#[test]
fn name_servers_are_few_and_public() {
    let mut policy = Egress {
        dns_servers: vec![Ipv4Addr::new(8, 8, 8, 8)],
        ..Egress::default()
    };
    assert!(policy.validate().is_ok());
    policy.dns_servers = vec![Ipv4Addr::new(10, 0, 0, 1)];
    assert_eq!(policy.validate(), Err(InvalidRule::DnsServers));
    policy.dns_servers = vec![Ipv4Addr::new(8, 8, 8, 8); 3];
    assert!(policy.validate().is_ok());
    policy.dns_servers = vec![Ipv4Addr::new(8, 8, 8, 8); 4];
    assert_eq!(policy.validate(), Err(InvalidRule::DnsServers));
}

proptest! {
    #[test]
    fn parsing_any_text_never_panics_and_valid_ranges_round_trip(text in ".{0,40}") {
        if let Ok(range) = text.parse::<AddressRange>() {
            let again: AddressRange = range.to_string().parse().unwrap();
            prop_assert_eq!(again, range);
        }
    }
}
