//! The packet filters of a slot and of the host, as data for `nft -j`.
//!
//! [`Egress::allows`] defines the meaning; these rules implement it for packets. Structured JSON,
//! never text, so that user input cannot become syntax.
//!
//! Every packet that leaves the sandbox is filtered, not only the first of a connection. A rule
//! that is added later therefore cuts open connections.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};
use serde_json::{Value, json};
use shoal_core::network::{AddressRange, BLOCKED_V4, Egress};

use super::{GUEST_ADDRESS, NAME_ADDRESSES, ROUTER_ADDRESS};

/// The table, in every slot and on the host.
const TABLE: &str = "shoal";
/// The slot's interface towards the sandbox.
pub(super) const INNER: &str = "in0";
/// The slot's interface towards the host.
pub(super) const OUTER: &str = "out0";

fn chain(table: &str, name: &str) -> Value {
    json!({"add": {"chain": {"family": "inet", "table": table, "name": name}}})
}

fn hook(table: &str, name: &str, kind: &str, hook: &str, prio: i32, policy: &str) -> Value {
    json!({"add": {"chain": {"family": "inet", "table": table, "name": name, "type": kind,
        "hook": hook, "prio": prio, "policy": policy}}})
}

fn rule(table: &str, chain: &str, expr: Vec<Value>) -> Value {
    json!({"add": {"rule": {"family": "inet", "table": table, "chain": chain, "expr": expr}}})
}

fn is(left: Value, right: Value) -> Value {
    json!({"match": {"op": "==", "left": left, "right": right}})
}

fn is_not(left: Value, right: Value) -> Value {
    json!({"match": {"op": "!=", "left": left, "right": right}})
}

fn within(left: Value, right: Value) -> Value {
    json!({"match": {"op": "in", "left": left, "right": right}})
}

fn meta(key: &str) -> Value {
    json!({"meta": {"key": key}})
}

fn destination() -> Value {
    json!({"payload": {"protocol": "ip", "field": "daddr"}})
}

fn source() -> Value {
    json!({"payload": {"protocol": "ip", "field": "saddr"}})
}

fn ct(key: &str) -> Value {
    json!({"ct": {"key": key}})
}

fn accept() -> Value {
    json!({"accept": null})
}

fn drop() -> Value {
    json!({"drop": null})
}

/// Rejects immediately, so that a client in the sandbox does not have to time out.
fn reject() -> Value {
    json!({"reject": {"type": "icmpx", "expr": "admin-prohibited"}})
}

/// Resets a connection that this slot has not seen begin: saved memory may hold connections of another slot. Without an
/// answer a program inside would wait for minutes until it notices.
fn reset_unknown() -> Vec<Value> {
    let flags = json!({"&": [
        {"payload": {"protocol": "tcp", "field": "flags"}}, ["fin", "syn", "rst", "ack"]]});
    vec![
        is(meta("iifname"), json!(INNER)),
        within(ct("state"), json!("new")),
        is_not(flags, json!("syn")),
        json!({"reject": {"type": "tcp reset"}}),
    ]
}

fn prefix(net: &Ipv4Net) -> Value {
    json!({"prefix": {"addr": net.network().to_string(), "len": net.prefix_len()}})
}

fn interval_set(name: &str, nets: Vec<Ipv4Net>) -> Value {
    // nft rejects an empty `elem`.
    let elements: Vec<Value> = Ipv4Net::aggregate(&nets).iter().map(prefix).collect();
    let mut set = json!({"family": "inet", "table": TABLE, "name": name, "type": "ipv4_addr",
        "flags": ["interval"]});
    if !elements.is_empty() {
        set["elem"] = Value::Array(elements);
    }
    json!({"add": {"set": set}})
}

fn v4_nets(ranges: &[AddressRange]) -> Vec<Ipv4Net> {
    ranges
        .iter()
        .filter_map(|range| match range.net() {
            IpNet::V4(net) => Some(net),
            // A slot has no IPv6 at all, so an allow rule for it has no effect.
            IpNet::V6(_) => None,
        })
        .collect()
}

/// The rules below every policy, which also apply while there is no policy.
///
/// The chain `egress` is empty here and the policy of `forward` is to drop, so a slot is closed
/// until [`egress`] has been applied.
pub(super) fn slot() -> Value {
    let dnat_guest = json!({"dnat": {"family": "ip", "addr": GUEST_ADDRESS.to_string()}});
    let snat_router = json!({"snat": {"family": "ip", "addr": ROUTER_ADDRESS.to_string()}});
    json!({"nftables": [
        {"add": {"table": {"family": "inet", "name": TABLE}}},
        hook(TABLE, "prerouting", "nat", "prerouting", -100, "accept"),
        hook(TABLE, "postrouting", "nat", "postrouting", 100, "accept"),
        hook(TABLE, "forward", "filter", "forward", 0, "drop"),
        hook(TABLE, "input", "filter", "input", 0, "drop"),
        chain(TABLE, "resolve"),
        chain(TABLE, "egress"),
        interval_set("blocked", BLOCKED_V4.to_vec()),
        interval_set("allowed", Vec::new()),
        interval_set("denied", Vec::new()),
        rule(TABLE, "prerouting", vec![
            is(meta("iifname"), json!(OUTER)), is(meta("nfproto"), json!("ipv4")), dnat_guest]),
        rule(TABLE, "prerouting", vec![
            is(meta("iifname"), json!(INNER)),
            is(destination(), json!({"set": NAME_ADDRESSES.map(|name| name.to_string())})),
            json!({"jump": {"target": "resolve"}})]),
        rule(TABLE, "postrouting", vec![
            is(meta("oifname"), json!(OUTER)), json!({"masquerade": null})]),
        rule(TABLE, "postrouting", vec![
            is(meta("oifname"), json!(INNER)), is(meta("nfproto"), json!("ipv4")), snat_router]),
        rule(TABLE, "forward", vec![is(meta("nfproto"), json!("ipv6")), drop()]),
        // A privileged sandbox makes packets itself. Address translation leaves invalid ones as they are.
        rule(TABLE, "forward", vec![
            is(meta("iifname"), json!(INNER)),
            is_not(source(), json!(GUEST_ADDRESS.to_string())), drop()]),
        rule(TABLE, "forward", vec![
            is(meta("iifname"), json!(INNER)), within(ct("state"), json!("invalid")), drop()]),
        rule(TABLE, "forward", reset_unknown()),
        // Requests of the gateway, and replies from outside.
        rule(TABLE, "forward", vec![
            is(meta("iifname"), json!(OUTER)), is(meta("oifname"), json!(INNER)),
            within(ct("status"), json!("dnat")), accept()]),
        rule(TABLE, "forward", vec![
            is(meta("iifname"), json!(OUTER)), is(meta("oifname"), json!(INNER)),
            within(ct("state"), json!(["established", "related"])), accept()]),
        // Replies of the sandbox to the gateway.
        rule(TABLE, "forward", vec![
            is(meta("iifname"), json!(INNER)), is(ct("direction"), json!("reply")),
            within(ct("state"), json!(["established", "related"])), accept()]),
        rule(TABLE, "forward", vec![
            is(meta("iifname"), json!(INNER)), is(meta("oifname"), json!(OUTER)),
            json!({"jump": {"target": "egress"}})]),
        // The sandbox sees its router in place of the gateway.
        rule(TABLE, "input", reset_unknown()),
        rule(TABLE, "input", vec![is(meta("iifname"), json!(INNER)), reject()]),
    ]})
}

/// The policy of a slot; replaces the current one in one transaction.
///
/// `resolvers` are the host's name servers, used when the policy names none.
pub(super) fn egress(policy: &Egress, resolvers: &[Ipv4Addr]) -> Value {
    let mut commands = Vec::new();
    for name in ["egress", "resolve"] {
        commands.push(json!({"flush": {"chain":
            {"family": "inet", "table": TABLE, "name": name}}}));
    }
    for name in ["allowed", "denied"] {
        commands.push(json!({"flush": {"set":
            {"family": "inet", "table": TABLE, "name": name}}}));
    }
    let (allowed, denied) = (v4_nets(&policy.allow), v4_nets(&policy.deny));
    commands.push(interval_set("allowed", allowed));
    commands.push(interval_set("denied", denied));
    commands.extend(name_service(policy, resolvers));
    commands.push(rule(
        TABLE,
        "egress",
        vec![is(destination(), json!("@blocked")), reject()],
    ));
    commands.push(rule(
        TABLE,
        "egress",
        vec![is(destination(), json!("@allowed")), accept()],
    ));
    commands.push(rule(
        TABLE,
        "egress",
        vec![is(destination(), json!("@denied")), reject()],
    ));
    let rest = if policy.internet == Some(false) {
        reject()
    } else {
        accept()
    };
    commands.push(rule(TABLE, "egress", vec![rest]));
    json!({"nftables": commands})
}

/// Forwards DNS from the slot's own addresses, each to one name server. The sandbox sees only the
/// slot's addresses, so its configuration does not change when the servers do. Queries to an
/// address without a server are rejected immediately.
fn name_service(policy: &Egress, resolvers: &[Ipv4Addr]) -> Vec<Value> {
    let servers = if policy.dns_servers.is_empty() {
        resolvers
    } else {
        &policy.dns_servers
    };
    let everything: IpAddr = Ipv4Addr::new(1, 1, 1, 1).into();
    let closed = policy.internet == Some(false)
        || policy
            .deny
            .iter()
            .any(|r| r.net().prefix_len() == 0 && r.net().contains(&everything));
    if closed {
        return Vec::new();
    }
    let pairs = NAME_ADDRESSES.iter().zip(servers);
    pairs.flat_map(|(name, server)| ask(name, server)).collect()
}

/// Forwards queries to `name` on to `server`.
fn ask(name: &Ipv4Addr, server: &Ipv4Addr) -> [Value; 2] {
    let dns = || {
        vec![
            within(meta("l4proto"), json!({"set": ["tcp", "udp"]})),
            is(
                json!({"payload": {"protocol": "th", "field": "dport"}}),
                json!(53),
            ),
        ]
    };
    let mut pass_on = dns();
    pass_on.push(is(destination(), json!(name.to_string())));
    pass_on.push(json!({"dnat": {"family": "ip", "addr": server.to_string()}}));
    let mut let_through = dns();
    let_through.push(is(destination(), json!(server.to_string())));
    // Only queries sent to the slot's address: a private resolver is not opened for anything else.
    let_through.push(is(
        json!({"ct": {"key": "ip daddr", "dir": "original"}}),
        json!(name.to_string()),
    ));
    let_through.push(accept());
    [
        rule(TABLE, "resolve", pass_on),
        rule(TABLE, "egress", let_through),
    ]
}

/// The host's table: `table` is this installation's, `own` the pattern of its interfaces, `all`
/// that of every installation's, `range` where its slots are.
pub(super) fn host(table: &str, own: &str, all: &str, range: Ipv4Net) -> Value {
    let slots = json!({"prefix": {"addr": range.network().to_string(), "len": range.prefix_len()}});
    json!({"nftables": [
        {"add": {"table": {"family": "inet", "name": table}}},
        {"delete": {"table": {"family": "inet", "name": table}}},
        {"add": {"table": {"family": "inet", "name": table}}},
        hook(table, "input", "filter", "input", -10, "accept"),
        hook(table, "forward", "filter", "forward", -10, "accept"),
        hook(table, "output", "filter", "output", -10, "accept"),
        hook(table, "postrouting", "nat", "postrouting", 100, "accept"),
        chain(table, "into_slots"),
        // The host is not a peer: only replies to its own requests may come in.
        rule(table, "input", vec![
            is(meta("iifname"), json!(own)),
            within(ct("state"), json!(["established", "related"])), accept()]),
        rule(table, "input", vec![is(meta("iifname"), json!(own)), reject()]),
        // Sandboxes cannot reach each other, and only the host can reach a sandbox.
        rule(table, "forward", vec![
            is(meta("iifname"), json!(own)), is(meta("oifname"), json!(all)), reject()]),
        rule(table, "forward", vec![
            is(meta("oifname"), json!(own)),
            within(ct("state"), json!(["established", "related"])), accept()]),
        rule(table, "forward", vec![is(meta("oifname"), json!(own)), drop()]),
        rule(table, "output", vec![
            is(meta("oifname"), json!(own)), json!({"jump": {"target": "into_slots"}})]),
        // Only root reaches a sandbox without the gateway: the server runs as root and checks keys
        // and tokens, which the ports behind it do not. The socket's creator counts as the user.
        rule(table, "into_slots", vec![is(meta("skuid"), json!(0)), accept()]),
        // Before the rule for established connections: another user may reuse the port of root's
        // connection.
        rule(table, "into_slots", vec![is_not(meta("skuid"), json!(0)), reject()]),
        // The packets that close a connection of root may no longer belong to a socket.
        rule(table, "into_slots", vec![
            within(ct("state"), json!(["established", "related"])), accept()]),
        rule(table, "into_slots", vec![drop()]),
        rule(table, "postrouting", vec![
            is(source(), slots), is_not(meta("oifname"), json!(all)), json!({"masquerade": null})]),
    ]})
}

/// Removes the host's table.
pub(super) fn no_host(table: &str) -> Value {
    json!({"nftables": [
        {"add": {"table": {"family": "inet", "name": table}}},
        {"delete": {"table": {"family": "inet", "name": table}}},
    ]})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(policy: &Egress) -> String {
        egress(policy, &[Ipv4Addr::new(10, 9, 8, 7)]).to_string()
    }

    #[test]
    fn a_closed_policy_rejects_traffic_and_dns() {
        let closed = Egress {
            internet: Some(false),
            ..Egress::default()
        };
        let text = text(&closed);
        assert!(!text.contains("10.9.8.7"));
        assert!(text.ends_with(r#"[{"reject":{"expr":"admin-prohibited","type":"icmpx"}}],"family":"inet","table":"shoal"}}}]}"#));
    }

    #[test]
    fn an_open_policy_forwards_dns_to_the_server_of_the_host_or_its_own() {
        assert!(text(&Egress::default()).contains("10.9.8.7"));
        let own = Egress {
            dns_servers: vec![Ipv4Addr::new(9, 9, 9, 9)],
            ..Egress::default()
        };
        assert!(text(&own).contains("9.9.9.9"));
        assert!(!text(&own).contains("10.9.8.7"));
    }

    #[test]
    fn each_name_server_has_its_own_address() {
        let servers = [1, 2, 3, 4].map(|last| Ipv4Addr::new(9, 9, 9, last));
        let rules = name_service(&Egress::default(), &servers);
        assert_eq!(rules.len(), 2 * NAME_ADDRESSES.len());
        for (rules, (name, server)) in rules.chunks(2).zip(NAME_ADDRESSES.iter().zip(servers)) {
            for rule in rules {
                let rule = rule.to_string();
                assert!(rule.contains(&format!("\"{name}\"")), "{rule}");
                assert!(rule.contains(&format!("\"{server}\"")), "{rule}");
            }
        }
        let own = Egress {
            dns_servers: servers[..1].to_vec(),
            ..Egress::default()
        };
        assert_eq!(name_service(&own, &servers[1..]).len(), 2);
    }

    #[test]
    fn overlapping_ranges_are_merged_because_an_interval_set_rejects_them() {
        let ranges = ["1.0.0.0/8", "1.1.1.1", "2606:4700::/32"]
            .map(|r| r.parse().unwrap())
            .to_vec();
        let text = text(&Egress {
            deny: ranges,
            ..Egress::default()
        });
        assert!(text.contains(r#"{"prefix":{"addr":"1.0.0.0","len":8}}"#));
        assert!(!text.contains("1.1.1.1"));
        assert!(!text.contains("2606"));
    }
}
