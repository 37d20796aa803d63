//! The book's curves: rates over the values of a sweep, one line for each kernel and schedule, the
//! roofline dashed behind them. The picture is an SVG without scripts, fonts or links.

use super::{Results, Row};
use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 460.0;
/// The frame of the curves within the picture.
const LEFT: f64 = 70.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 56.0;
/// Where the legend stands.
const LEGEND: f64 = 180.0;

/// Colours that people tell apart who see few (Okabe and Ito's).
const COLORS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// One line of the picture.
struct Series<'a> {
    name: String,
    kernel: &'a str,
    /// Where the points lie on the sweep, and how high.
    points: Vec<(f64, f64)>,
}

/// What is drawn upwards.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Gflops,
    Gbs,
}

impl Unit {
    /// Operations where a kernel has at least one for each byte, as the book's matrix products
    /// have; else bytes.
    fn of(rows: &[Row]) -> Unit {
        let computes = |row: &Row| row.work.flops >= row.work.bytes && row.work.flops > 0.0;
        if rows.iter().any(computes) { Unit::Gflops } else { Unit::Gbs }
    }

    fn name(self) -> &'static str {
        if self == Unit::Gflops { "GFLOP/s" } else { "GB/s" }
    }

    fn rate(self, row: &Row, seconds: f64) -> f64 {
        match self {
            Unit::Gflops => row.work.gflops(seconds),
            Unit::Gbs => row.work.gbs(seconds),
        }
    }
}

/// The picture of what was measured, its points at `across`, one for each value of the sweep.
pub fn svg(results: &Results, across: &[f64]) -> String {
    let sweep = results.sweep.as_ref().expect("a picture has a sweep");
    let unit = Unit::of(&results.rows);
    let place = |row: &Row| {
        let at = sweep.values.iter().position(|value| Some(value) == row.point.as_ref());
        across[at.expect("a point of the sweep")]
    };
    let curves = series(results, &|row| {
        Some((place(row), unit.rate(row, row.times.median), legend(results, row)))
    });
    let mut roofs = series(results, &|row| {
        let roof = row.roof.as_ref()?;
        let several = results.rows.iter().any(|other| other.kernel != row.kernel);
        let of = if several { format!(" of {}", row.kernel) } else { String::new() };
        Some((place(row), unit.rate(row, roof.seconds), format!("roofline{of}")))
    });
    // A roofline far above would press the curves to the ground: it leaves the picture instead.
    let (curve, roof) = (highest(&curves), highest(&roofs));
    let frame = Frame::new(across, if roof > 2.5 * curve { 1.2 * curve } else { curve.max(roof) });
    let mut text = String::new();
    let mut kernels: Vec<&str> = curves.iter().map(|series| series.kernel).collect();
    kernels.dedup();
    let threads = match results.threads {
        1 => "1 thread".to_string(),
        count => format!("{count} threads"),
    };
    let target = results.rows.first().map_or("", |row| &row.target);
    let title = format!("{}, {target}, {threads}", kernels.join(", "));
    open(&mut text, &title);
    frame.draw(&mut text, &sweep.name, unit.name());
    for (at, series) in roofs.iter_mut().enumerate() {
        if series.points.iter().all(|point| point.1 > frame.top) {
            let least = series.points.iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
            series.name.push_str(&format!(", above: {least:.0}"));
        }
        frame.line(&mut text, series, "#777777", true, curves.len() + at);
    }
    for (at, series) in curves.iter().enumerate() {
        frame.line(&mut text, series, COLORS[at % COLORS.len()], false, at);
    }
    text.push_str("</svg>\n");
    text
}

fn highest(series: &[Series<'_>]) -> f64 {
    series.iter().flat_map(|series| &series.points).map(|point| point.1).fold(0.0, f64::max)
}

/// What a line is called: the parts that differ.
fn legend(results: &Results, row: &Row) -> String {
    let rows = &results.rows;
    let mut parts = Vec::new();
    if rows.iter().any(|other| other.kernel != row.kernel) {
        parts.push(&row.kernel[..]);
    }
    if rows.iter().any(|other| other.file != row.file) {
        parts.push(&row.file[..]);
    }
    parts.push(&row.schedule[..]);
    parts.join(" ")
}

/// The rows as lines, by name, in order of first appearance; each from left to right.
fn series<'a>(
    results: &'a Results,
    point: &dyn Fn(&Row) -> Option<(f64, f64, String)>,
) -> Vec<Series<'a>> {
    let mut all: Vec<Series<'a>> = Vec::new();
    for row in &results.rows {
        let Some((x, y, name)) = point(row) else { continue };
        let at = all.iter().position(|series| series.name == name).unwrap_or_else(|| {
            all.push(Series { name, kernel: &row.kernel, points: Vec::new() });
            all.len() - 1
        });
        // The variants of a kernel share its roofline.
        if all[at].points.iter().all(|(known, _)| *known != x) {
            all[at].points.push((x, y));
        }
    }
    for series in &mut all {
        series.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    all
}

/// How values become places.
struct Frame {
    /// The marked values across, sorted.
    across: Vec<f64>,
    /// Across, values lie by their logarithm.
    logarithmic: bool,
    /// The value of the upper edge, and between two lines.
    top: f64,
    step: f64,
}

impl Frame {
    fn new(across: &[f64], highest: f64) -> Frame {
        let mut across = across.to_vec();
        across.sort_by(f64::total_cmp);
        let (first, last) = (across[0], across[across.len() - 1]);
        let logarithmic = first > 0.0 && last >= 4.0 * first;
        // Four to ten lines at 1, 2 or 5 times a power of ten.
        let highest = if highest > 0.0 { highest } else { 1.0 };
        let power = 10_f64.powf((highest / 5.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|by| by * power);
        let step = step.into_iter().find(|step| highest / step <= 7.0).unwrap_or(10.0 * power);
        Frame { across, logarithmic, top: (highest * 1.02 / step).ceil() * step, step }
    }

    fn right() -> f64 {
        WIDTH - LEGEND - 20.0
    }

    fn x(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.logarithmic { value.log2() } else { value };
        let (first, last) = (scale(self.across[0]), scale(self.across[self.across.len() - 1]));
        // Points keep a distance from the edges; a single one lies in the middle.
        let (left, right) = (LEFT + 16.0, Frame::right() - 16.0);
        if last > first {
            left + (scale(value) - first) / (last - first) * (right - left)
        } else {
            (left + right) / 2.0
        }
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - value / self.top * (HEIGHT - BOTTOM - TOP)
    }

    /// Axes with their lines and names.
    fn draw(&self, text: &mut String, across: &str, upwards: &str) {
        let (right, bottom) = (Frame::right(), HEIGHT - BOTTOM);
        let digits = (-self.step.log10().floor()).max(0.0) as usize;
        let lines = (self.top / self.step).round() as usize;
        let (width, height) = (right - LEFT, bottom - TOP);
        push(
            text,
            format_args!(
                r#"<clipPath id="frame"><rect x="{LEFT}" y="{TOP}" width="{width}" height="{height}"/></clipPath>"#
            ),
        );
        for line in 0..=lines {
            let value = line as f64 * self.step;
            let y = self.y(value);
            push(
                text,
                format_args!(
                    r##"<line x1="{LEFT}" y1="{y:.1}" x2="{right}" y2="{y:.1}" stroke="#dddddd"/>"##
                ),
            );
            let (x, y) = (LEFT - 8.0, y + 4.0);
            push(
                text,
                format_args!(
                    r#"<text x="{x}" y="{y:.1}" text-anchor="end">{value:.digits$}</text>"#
                ),
            );
        }
        push(
            text,
            format_args!(
                r##"<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="#333333"/>"##
            ),
        );
        // Numbers that would touch the one before are left out.
        let mut free = f64::NEG_INFINITY;
        for value in &self.across {
            let (x, width) = (self.x(*value), 7.5 * value.to_string().len() as f64);
            let below = bottom + 5.0;
            push(
                text,
                format_args!(
                    r##"<line x1="{x:.1}" y1="{bottom}" x2="{x:.1}" y2="{below}" stroke="#333333"/>"##
                ),
            );
            if x - width / 2.0 >= free {
                let y = bottom + 20.0;
                push(
                    text,
                    format_args!(r#"<text x="{x:.1}" y="{y}" text-anchor="middle">{value}</text>"#),
                );
                free = x + width / 2.0 + 4.0;
            }
        }
        let (x, y) = ((LEFT + right) / 2.0, HEIGHT - 14.0);
        push(
            text,
            format_args!(r#"<text x="{x}" y="{y}" text-anchor="middle">{}</text>"#, escape(across)),
        );
        let y = (TOP + bottom) / 2.0;
        push(
            text,
            format_args!(
                r#"<text transform="translate(18 {y}) rotate(-90)" text-anchor="middle">{upwards}</text>"#
            ),
        );
    }

    /// A line with its points, and its name in the legend at a place.
    fn line(&self, text: &mut String, series: &Series<'_>, color: &str, dashed: bool, at: usize) {
        let dashes = if dashed { r#" stroke-dasharray="6 4""# } else { "" };
        let clip = if dashed { r#" clip-path="url(#frame)""# } else { "" };
        let name = escape(&series.name);
        let _ = writeln!(text, "<g stroke=\"{color}\" fill=\"none\" stroke-width=\"2\">");
        let places = series.points.iter().map(|(x, y)| (self.x(*x), self.y(*y)));
        let places: Vec<String> = places.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let points = places.join(" ");
        push(text, format_args!(r#"<polyline points="{points}"{dashes}{clip}/>"#));
        if !dashed {
            for (x, y) in &series.points {
                let (cx, cy) = (self.x(*x), self.y(*y));
                push(
                    text,
                    format_args!(
                        r#"<circle cx="{cx:.1}" cy="{cy:.1}" r="3" fill="{color}"><title>{name}, {x}: {y:.2}</title></circle>"#
                    ),
                );
            }
        }
        let (x, y) = (WIDTH - LEGEND, TOP + 8.0 + 20.0 * at as f64);
        let end = x + 24.0;
        push(text, format_args!(r#"<path d="M{x} {y}H{end}"{dashes}/>"#));
        text.push_str("</g>\n");
        let (x, y) = (end + 8.0, y + 4.0);
        push(text, format_args!(r#"<text x="{x}" y="{y}">{name}</text>"#));
    }
}

fn open(text: &mut String, title: &str) {
    let title = escape(title);
    push(
        text,
        format_args!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="13" fill="#222222">"##
        ),
    );
    push(text, format_args!("<title>{title}</title>"));
    push(text, format_args!(r#"<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>"#));
    push(text, format_args!(r#"<text x="{LEFT}" y="26" font-size="15">{title}</text>"#));
}

fn push(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("memory takes all text");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
