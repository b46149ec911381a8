//! Fuzz targets for parsers of strings within objects.

use evenkeel_api::cidr::Cidr;
use evenkeel_api::quantity::Quantity;
use evenkeel_api::{duration, forms, time};
use evenkeel_component_helpers::cron::{self, Schedule};
use jiff::Timestamp;

/// Parses quantities, durations, times and CIDRs. Checks that the canonical form of the first three parses to the
/// same value, for times to the microsecond.
pub(crate) fn texts(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(quantity) = Quantity::parse(&text) {
        assert_eq!(Quantity::parse(&quantity.to_string()), Ok(quantity));
        assert_eq!(quantity.sign(), quantity.plus(Quantity::from_units(0)).sign());
        let _ = (quantity.value(), quantity.milli_value(), quantity.as_f64());
        let _ = (quantity.rounded_up(), quantity.negated(), quantity.times(3));
        let _ =
            (quantity.plus(quantity), quantity.minus(quantity), quantity.cmp(&quantity.times(2)));
    }
    if let Ok(nanoseconds) = duration::nanoseconds(&text) {
        assert_eq!(duration::nanoseconds(&duration::format(nanoseconds)), Ok(nanoseconds));
    }
    if let Ok(time) = time::parse(&text) {
        let again = time::parse(&time::micros(time)).expect("a formatted time can be parsed");
        let cut = time.duration_since(again).as_nanos();
        assert!((0..1000).contains(&cut), "{time} is not {again}");
    }
    if let Some(cidr) = Cidr::parse(&text) {
        assert!(cidr.contains(cidr.first()) && cidr.contains(cidr.last()) && cidr.covers(&cidr));
    }
    let _ = (forms::dns_subdomain(&text), forms::dns_label(&text), forms::path_segment(&text));
}

/// Cron schedules: the first part is the schedule, the second a time zone. Checks that the next time is later than
/// the given one.
pub(crate) fn cron(data: &[u8]) {
    let mut parts = crate::input::parts(data);
    let Ok(schedule) = Schedule::parse(&String::from_utf8_lossy(parts.next().unwrap_or_default()))
    else {
        return;
    };
    let zone = parts.next().and_then(|name| cron::time_zone(std::str::from_utf8(name).ok()?));
    let zone = zone.unwrap_or(jiff::tz::TimeZone::UTC);
    // A leap day, and the hour before daylight saving time begins in Europe.
    for seconds in [951_782_400, 1_743_292_800] {
        let mut after = Timestamp::from_second(seconds).expect("the time is in range");
        for _ in 0..3 {
            let Some(next) = schedule.next(after, &zone) else { break };
            assert!(next > after, "{next} is not later than {after}");
            after = next;
        }
    }
}
