//! Sizes by the clock: which schedules have come due.
//!
//! Clock changes are those of cron: a fixed time that is skipped comes right after the gap, and one that is
//! repeated comes once.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use shoal_crds::kruise::{AppliedCronPolicy, CronPolicy, PoolAutoscalerSpec};

/// How long ago a schedule without a record may have come due.
const FIRST_LOOK: SignedDuration = SignedDuration::from_mins(1);

/// A policy that was read.
pub(crate) struct Schedule<'a> {
    policy: &'a CronPolicy,
    cron: Cron,
    zone: TimeZone,
}

/// A size that came due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Due {
    /// The name of the policy.
    pub(crate) name: String,
    /// When.
    pub(crate) at: Timestamp,
    /// The size.
    pub(crate) replicas: i32,
}

/// Reads the policies.
///
/// # Errors
/// Says which one is wrong, and how.
pub(crate) fn read(policies: &[CronPolicy], now: Timestamp) -> Result<Vec<Schedule<'_>>, String> {
    policies
        .iter()
        .map(|policy| read_one(policy, now))
        .collect()
}

fn read_one(policy: &CronPolicy, now: Timestamp) -> Result<Schedule<'_>, String> {
    let wrong = |why: String| format!("cron policy {:?}: {why}", policy.name);
    let parser = CronParser::builder()
        .seconds(Seconds::Disallowed)
        .year(Year::Disallowed)
        .build();
    let cron = parser.parse(&policy.schedule);
    let cron = cron.map_err(|error| wrong(format!("schedule {:?}: {error}", policy.schedule)))?;
    let zone = match policy.time_zone.as_deref() {
        None | Some("") => TimeZone::UTC,
        Some(name) => {
            let zone = TimeZone::get(name);
            zone.map_err(|_| wrong(format!("there is no time zone {name:?}")))?
        }
    };
    if cron
        .find_next_occurrence(&now.to_zoned(zone.clone()), false)
        .is_err()
    {
        return Err(wrong(format!("schedule {:?} never comes", policy.schedule)));
    }
    Ok(Schedule { policy, cron, zone })
}

/// The schedules that came due since their records, the earliest first. Of several at the same time, the
/// last one counts.
pub(crate) fn due(
    schedules: &[Schedule<'_>],
    applied: &[AppliedCronPolicy],
    now: Timestamp,
) -> Vec<Due> {
    let mut due: Vec<Due> = schedules
        .iter()
        .filter_map(|schedule| schedule.due(applied, now))
        .collect();
    due.sort_by_key(|due| due.at);
    due
}

/// The size that the last schedule asked for; none when a policy about capacity asks for another meanwhile.
pub(crate) fn asked(spec: &PoolAutoscalerSpec, applied: &[AppliedCronPolicy]) -> Option<i32> {
    if spec.capacity_policy.is_some() {
        return None;
    }
    let last = applied
        .iter()
        .filter_map(|one| Some((one.last_schedule_time.as_ref()?.0, &one.name)));
    let (_, name) = last.max_by_key(|(at, _)| *at)?;
    let policy = spec
        .cron_policies
        .iter()
        .find(|policy| policy.name == *name)?;
    Some(policy.target_replicas)
}

impl Schedule<'_> {
    fn due(&self, applied: &[AppliedCronPolicy], now: Timestamp) -> Option<Due> {
        let record = applied.iter().find(|one| one.name == self.policy.name);
        let record = record.and_then(|one| Some(one.last_schedule_time.as_ref()?.0));
        let since = record.unwrap_or(now - FIRST_LOOK);
        let last = self
            .cron
            .find_previous_occurrence(&now.to_zoned(self.zone.clone()), true);
        let at = last.ok()?.timestamp();
        // A clock that went back has no schedule twice.
        (at > since).then(|| Due {
            name: self.policy.name.clone(),
            at,
            replicas: self.policy.target_replicas,
        })
    }
}

/// The records after these came due: of the policies that still exist.
pub(crate) fn record(
    policies: &[CronPolicy],
    applied: &[AppliedCronPolicy],
    due: &[Due],
) -> Vec<AppliedCronPolicy> {
    let exists = |one: &&AppliedCronPolicy| policies.iter().any(|policy| policy.name == one.name);
    let mut records: Vec<AppliedCronPolicy> = applied.iter().filter(exists).cloned().collect();
    for due in due {
        let time = Some(Time(due.at));
        match records.iter_mut().find(|one| one.name == due.name) {
            Some(record) => record.last_schedule_time = time,
            None => records.push(AppliedCronPolicy {
                name: due.name.clone(),
                last_schedule_time: time,
            }),
        }
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn policy(name: &str, schedule: &str, zone: Option<&str>, replicas: i32) -> CronPolicy {
        CronPolicy {
            name: name.to_owned(),
            time_zone: zone.map(str::to_owned),
            schedule: schedule.to_owned(),
            target_replicas: replicas,
        }
    }

    fn applied(name: &str, time: &str) -> AppliedCronPolicy {
        AppliedCronPolicy {
            name: name.to_owned(),
            last_schedule_time: Some(Time(at(time))),
        }
    }

    fn fired(policies: &[CronPolicy], applied: &[AppliedCronPolicy], now: &str) -> Vec<String> {
        let now = at(now);
        let due = due(&read(policies, now).unwrap(), applied, now);
        due.iter()
            .map(|due| format!("{} {} {}", due.name, due.at, due.replicas))
            .collect()
    }

    #[test]
    fn a_schedule_comes_once_in_its_own_zone() {
        let berlin = [policy("day", "0 8 * * MON-FRI", Some("Europe/Berlin"), 20)];
        let none = Vec::<String>::new();
        assert_eq!(fired(&berlin, &[], "2026-01-05T06:59:59Z"), none);
        let now = "2026-01-05T07:00:03Z";
        assert_eq!(fired(&berlin, &[], now), ["day 2026-01-05T07:00:00Z 20"]);
        let records = [applied("day", "2026-01-05T07:00:00Z")];
        assert_eq!(fired(&berlin, &records, "2026-01-05T07:00:08Z"), none);
        // The clock was set back behind the record.
        assert_eq!(fired(&berlin, &records, "2026-01-05T06:30:00Z"), none);
        // Saturday.
        assert_eq!(fired(&berlin, &records, "2026-01-10T07:00:01Z").len(), 1);
    }

    #[test]
    fn a_policy_without_a_record_looks_back_a_minute() {
        let policies = [policy("p", "0 8 * * *", None, 1)];
        assert_eq!(fired(&policies, &[], "2026-01-05T08:00:59Z").len(), 1);
        assert!(fired(&policies, &[], "2026-01-05T08:01:01Z").is_empty());
        // With one, runs that were missed during an outage are made up for by a single one.
        let records = [applied("p", "2026-01-01T08:00:00Z")];
        let due = fired(&policies, &records, "2026-01-05T12:00:00Z");
        assert_eq!(due, ["p 2026-01-05T08:00:00Z 1"]);
    }

    #[test]
    fn a_time_that_a_clock_change_skips_comes_right_after_it() {
        // In Berlin, the clock went from 02:00 to 03:00 on 2026-03-29.
        let policies = [policy("p", "30 2 * * *", Some("Europe/Berlin"), 1)];
        let records = [applied("p", "2026-03-28T01:30:00Z")];
        assert!(fired(&policies, &records, "2026-03-29T00:59:59Z").is_empty());
        let due = fired(&policies, &records, "2026-03-29T01:00:01Z");
        assert_eq!(due, ["p 2026-03-29T01:00:00Z 1"]);
    }

    #[test]
    fn a_time_that_a_clock_change_repeats_comes_once() {
        // In Berlin, the clock went from 03:00 back to 02:00 on 2026-10-25, at 01:00 UTC.
        let policies = [policy("p", "30 2 * * *", Some("Europe/Berlin"), 1)];
        let records = [applied("p", "2026-10-24T00:30:00Z")];
        let due = fired(&policies, &records, "2026-10-25T00:30:01Z");
        assert_eq!(due, ["p 2026-10-25T00:30:00Z 1"]);
        let records = [applied("p", "2026-10-25T00:30:00Z")];
        assert!(fired(&policies, &records, "2026-10-25T01:30:01Z").is_empty());
        assert!(fired(&policies, &records, "2026-10-25T12:00:00Z").is_empty());
    }

    #[test]
    fn of_several_the_latest_counts_and_all_are_recorded() {
        let policies = [
            policy("late", "5 8 * * *", None, 2),
            policy("early", "0 8 * * *", None, 9),
            policy("also late", "5 8 * * *", None, 3),
        ];
        let old = "2026-01-04T08:00:00Z";
        let records = ["late", "early", "also late", "gone"].map(|name| applied(name, old));
        let now = at("2026-01-05T08:06:00Z");
        let due = due(&read(&policies, now).unwrap(), &records, now);
        let order: Vec<&str> = due.iter().map(|due| due.name.as_str()).collect();
        assert_eq!(order, ["early", "late", "also late"]);
        let records = record(&policies, &records, &due);
        assert_eq!(records.len(), 3, "none of a policy that is gone");
        assert!(records.contains(&applied("early", "2026-01-05T08:00:00Z")));
        assert!(records.contains(&applied("also late", "2026-01-05T08:05:00Z")));
    }

    #[test]
    fn what_is_no_schedule_is_told() {
        let now = at("2026-01-05T08:00:00Z");
        for (schedule, zone, told) in [
            ("0 8 * *", None, "schedule"),
            ("0 0 8 * * *", None, "schedule"),
            ("61 8 * * *", None, "schedule"),
            ("0 0 30 2 *", None, "never comes"),
            ("0 8 * * *", Some("Europe/Atlantis"), "time zone"),
        ] {
            let policies = [policy("wrong", schedule, zone, 1)];
            let why = read(&policies, now).err().unwrap();
            assert!(why.contains("wrong") && why.contains(told), "{why}");
        }
    }
}
