//! The flags about markers.

use clap::Args;

/// How pods may be marked.
#[derive(Debug, Args)]
#[command(next_help_heading = "PodMarkers")]
pub(crate) struct MarkerArgs {
    /// Pods that are patched for markers, in the whole cluster in a second.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) marker_patches_per_second: u16,
    /// Pods that a marker may change in a minute, but for a change of its spec.
    #[arg(long, default_value_t = 10)]
    pub(crate) marker_pods_per_minute: u16,
    /// The same as a percentage of the pods that match, if that is more.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(0..=100))]
    pub(crate) marker_percent_per_minute: u16,
}
