//! Samples of one quantity.

/// The measured values of one quantity, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    /// One sample.
    pub(crate) fn one(value: f64) -> Self {
        Self(vec![value])
    }

    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The median; NaN without samples.
    pub(crate) fn median(&self) -> f64 {
        let sorted = self.sorted();
        let (low, high) = (sorted.len().saturating_sub(1) / 2, sorted.len() / 2);
        match (sorted.get(low), sorted.get(high)) {
            (Some(low), Some(high)) => f64::midpoint(*low, *high),
            _ => f64::NAN,
        }
    }

    /// The 99th percentile; the maximum of fewer than 100 samples.
    pub(crate) fn p99(&self) -> f64 {
        let sorted = self.sorted();
        let beyond = sorted.len() / 100;
        let at = sorted.len().checked_sub(1 + beyond);
        at.and_then(|at| sorted.get(at).copied())
            .unwrap_or(f64::NAN)
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_and_p99_near_the_top() {
        let samples: Samples = (1..=4).rev().map(f64::from).collect();
        assert_eq!((samples.median(), samples.p99()), (2.5, 4.0));
        let samples: Samples = (1..=201).map(f64::from).collect();
        assert_eq!((samples.median(), samples.p99()), (101.0, 199.0));
        assert!(Samples::default().median().is_nan() && Samples::default().p99().is_nan());
    }
}
