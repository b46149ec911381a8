//! Reports as a page: one HTML file that needs no other host and no script.
//!
//! | part of the page | implemented in |
//! |---|---|
//! | summary in a sentence and in figures | [`view`] |
//! | plots of ready pods, evictions, budgets and nodes | [`plot`], [`figures`] |
//! | time series of two variants in one plot | [`time_series`] |
//! | tables | `templates/report.html` |
//! | differences of two variants, whose reports are side by side | `templates/page.html` |
//!
//! Templates escape all text. The page's policy allows no other script than its own.

mod figures;
mod plot;
mod time_series;
mod view;

use crate::{
    compare::Comparison,
    report::{Charts, Report},
};
use askama::Template;
use time_series::TimeSeries;
use view::{ComparisonView, VariantView};

/// Variant of a simulation on a page.
#[derive(Debug, Clone, Copy)]
pub struct PageVariant<'a> {
    /// Name of the variant.
    pub name: &'a str,
    /// Report of the variant.
    pub report: &'a Report,
    /// Time series of the variant.
    pub charts: &'a Charts,
}

/// Page of one or two variants.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    /// The variants, in the order of the page.
    pub variants: &'a [PageVariant<'a>],
    /// Differences of the variants, if there are two.
    pub comparison: Option<&'a Comparison>,
}

/// Data of the report's page.
#[derive(Template)]
#[template(path = "page.html")]
struct PageTemplate<'a> {
    title: String,
    comparison: Option<ComparisonView>,
    /// Plots of both variants, if there are two.
    time_series: Vec<TimeSeries>,
    variants: Vec<VariantView<'a>>,
}

impl Page<'_> {
    /// Returns the page as HTML.
    ///
    /// # Errors
    /// Fails if the template cannot be rendered, which only an error in the template causes.
    pub fn html(&self) -> Result<String, askama::Error> {
        let names: Vec<&str> = self.variants.iter().map(|variant| variant.name).collect();
        let comparison = match (self.comparison, &*names) {
            (Some(comparison), [a, b]) => Some(ComparisonView::of(comparison, [a, b])),
            _ => None,
        };
        // Variants are drawn on the same axis, so that their plots can be compared.
        let axis = figures::axis(self.variants);
        let time_series = match self.variants {
            [a, b] => TimeSeries::all([a, b], axis),
            _ => Vec::new(),
        };
        let variants = self.variants.iter().enumerate();
        PageTemplate {
            title: view::title(self.variants),
            comparison,
            time_series,
            variants: variants
                .map(|(index, variant)| VariantView::of(index, variant, names.len() > 1, axis))
                .collect(),
        }
        .render()
    }
}
