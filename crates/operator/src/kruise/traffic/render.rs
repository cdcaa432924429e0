//! A TrafficPolicy as a NetworkPolicy, as far as that can say it.
//!
//! A TrafficPolicy is a list of which the first rule that matches decides. A NetworkPolicy is a set of allowances, and what
//! it does not allow is dropped. So allowances are rendered, less the ranges that were rejected before them. An allowance
//! that cannot be said is left out, and so is everything after a rejection that cannot be said: the rendered policy
//! never allows more.

use std::net::IpAddr;

use serde_json::{Value, json};
use shoal_crds::kruise::{
    Peer, PolicyPort, RuleAction, TrafficDirection, TrafficPolicySpec, TrafficRule,
};

/// All addresses.
const ALL: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// A rendered policy.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Rendered {
    /// The specification of the NetworkPolicy.
    pub(super) spec: Value,
    /// The rules that it cannot express, for people.
    pub(super) missing: Vec<String>,
}

/// Renders a policy.
pub(super) fn render(policy: &TrafficPolicySpec) -> Rendered {
    let mut missing = Vec::new();
    let selector = policy.selector.clone().unwrap_or_default();
    let mut spec = json!({"podSelector": selector, "policyTypes": []});
    for (direction, kind, ends) in [
        (&policy.ingress, "Ingress", "from"),
        (&policy.egress, "Egress", "to"),
    ] {
        let Some(direction) = direction else {
            continue;
        };
        if let Some(types) = spec["policyTypes"].as_array_mut() {
            types.push(kind.into());
        }
        let rules = rules(direction, ends, &mut missing);
        if !rules.is_empty() {
            spec[kind.to_lowercase()] = rules.into();
        }
    }
    Rendered { spec, missing }
}

fn rules(direction: &TrafficDirection, ends: &str, missing: &mut Vec<String>) -> Vec<Value> {
    let mut rendered = Vec::new();
    // Ranges that were rejected so far, of all ports.
    let mut rejected: Vec<Range> = Vec::new();
    let rejects_only = direction
        .rules
        .iter()
        .all(|rule| rule.action == RuleAction::Reject);
    for (number, rule) in direction.rules.iter().enumerate() {
        let place = format!("{ends} rule {}", number + 1);
        let peers = if ends == "from" { &rule.from } else { &rule.to };
        match rule.action {
            // Traffic that no rule allows is dropped in any case.
            RuleAction::Reject if peers.is_empty() && rule.ports.is_empty() => return rendered,
            RuleAction::Reject => match rejection(rule, peers) {
                Ok(ranges) => rejected.extend(ranges),
                Err(why) => {
                    missing.push(format!("{place} and those after it: {why}"));
                    return rendered;
                }
            },
            RuleAction::Allow => {
                let one = allowance(rule, peers, ends, &rejected, &place, missing);
                rendered.extend(one);
            }
        }
    }
    // Rejections alone leave the rest open.
    if rejects_only && !direction.rules.is_empty() {
        let blocks: Vec<Value> = ALL.iter().filter_map(|all| block(all, &rejected)).collect();
        rendered.push(json!({ends: blocks}));
    }
    rendered
}

/// The ranges that a rule rejects.
fn rejection(rule: &TrafficRule, peers: &[Peer]) -> Result<Vec<Range>, String> {
    if !rule.ports.is_empty() {
        return Err("NetworkPolicies cannot reject ports".to_owned());
    }
    peers
        .iter()
        .map(|peer| {
            let cidr = peer.cidr.as_deref();
            let range = cidr.and_then(Range::parse);
            range.ok_or_else(|| {
                format!(
                    "NetworkPolicies can reject ranges of addresses only, not {}",
                    named(peer)
                )
            })
        })
        .collect()
}

/// The rule of a NetworkPolicy; none if nothing of it can be said.
fn allowance(
    rule: &TrafficRule,
    peers: &[Peer],
    ends: &str,
    rejected: &[Range],
    place: &str,
    missing: &mut Vec<String>,
) -> Option<Value> {
    let mut allowed = Vec::new();
    let everywhere: Vec<Peer> = ALL.iter().map(|all| Peer::of_cidr(all)).collect();
    let peers = match peers {
        // With nothing rejected, a rule without peers is one for all.
        [] if rejected.is_empty() => &[][..],
        [] => &everywhere,
        peers => peers,
    };
    for peer in peers {
        match peer_of(peer, rejected) {
            Ok(one) => allowed.extend(one),
            Err(why) => missing.push(format!("{place}: {why}")),
        }
    }
    if allowed.is_empty() && !peers.is_empty() {
        return None;
    }
    let mut ports = Vec::new();
    for port in &rule.ports {
        match port_of(port) {
            Ok(port) => ports.push(port),
            Err(why) => missing.push(format!("{place}: {why}")),
        }
    }
    if ports.is_empty() && !rule.ports.is_empty() {
        return None;
    }
    let mut rendered = json!({});
    if !allowed.is_empty() {
        rendered[ends] = allowed.into();
    }
    if !ports.is_empty() {
        rendered["ports"] = ports.into();
    }
    Some(rendered)
}

/// A peer; none if all of it was rejected.
fn peer_of(peer: &Peer, rejected: &[Range]) -> Result<Option<Value>, String> {
    if let Some(cidr) = &peer.cidr {
        return Ok(block(cidr, rejected));
    }
    let Some(workload) = &peer.workload else {
        return Err(format!("NetworkPolicies cannot name {}", named(peer)));
    };
    if !rejected.is_empty() {
        return Err("pods after a rejected range may be in it".to_owned());
    }
    let mut selected = json!({"podSelector": {}});
    if !workload.selector.is_empty() {
        selected["podSelector"] = json!({"matchLabels": workload.selector});
    }
    if !workload.namespace.is_empty() {
        let name = json!({"kubernetes.io/metadata.name": workload.namespace});
        selected["namespaceSelector"] = json!({"matchLabels": name});
    }
    Ok(Some(selected))
}

/// A block of addresses less the rejected ones; none if nothing is left, or if it is no range.
fn block(cidr: &str, rejected: &[Range]) -> Option<Value> {
    let range = Range::parse(cidr)?;
    if rejected.iter().any(|other| other.contains(&range)) {
        return None;
    }
    let within = rejected.iter().filter(|other| range.contains(other));
    let except: Vec<String> = within.map(|other| other.text.clone()).collect();
    let mut block = json!({"cidr": range.text});
    if !except.is_empty() {
        block["except"] = json!(except);
    }
    Some(json!({"ipBlock": block}))
}

fn port_of(port: &PolicyPort) -> Result<Value, String> {
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    if !["TCP", "UDP", "SCTP"].contains(&protocol) {
        return Err(format!("NetworkPolicies do not know {protocol}"));
    }
    let mut rendered = json!({"protocol": protocol});
    if let Some(first) = port.port {
        rendered["port"] = first.into();
    }
    if let Some(last) = port.end_port {
        rendered["endPort"] = last.into();
    }
    Ok(rendered)
}

/// A description of a peer, for people.
fn named(peer: &Peer) -> String {
    match (&peer.cidr, &peer.fqdn, &peer.service, &peer.workload) {
        (Some(cidr), ..) => format!("the range {cidr:?}"),
        (_, Some(name), ..) => format!("the domain {name:?}"),
        (_, _, Some(service), _) => format!("the service {:?}", service.name),
        (_, _, _, Some(_)) => "pods by their labels".to_owned(),
        _ => "nothing".to_owned(),
    }
}

/// A range of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Range {
    text: String,
    /// The address as a number of 128 bits, with IPv4 addresses in their mapped range.
    start: u128,
    bits: u32,
    is_v4: bool,
}

impl Range {
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let (address, bits): (IpAddr, u32) = (address.parse().ok()?, bits.parse().ok()?);
        let (number, width) = match address {
            IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
            IpAddr::V6(address) => (address.to_bits(), 128),
        };
        if bits > width {
            return None;
        }
        let host = width - bits;
        let start = number.checked_shr(host).unwrap_or_default();
        let start = start.checked_shl(host).unwrap_or_default();
        Some(Self {
            text: text.to_owned(),
            start,
            bits,
            is_v4: address.is_ipv4(),
        })
    }

    fn contains(&self, other: &Self) -> bool {
        let width = if self.is_v4 { 32 } else { 128 };
        let host = width - self.bits;
        self.is_v4 == other.is_v4
            && self.bits <= other.bits
            && self.start.checked_shr(host).unwrap_or_default()
                == other.start.checked_shr(host).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
