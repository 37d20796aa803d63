//! Plots rates over the values of a sweep, one line for each kernel and schedule, with dashed
//! rooflines. The plot is an SVG without scripts, fonts or links.

use super::{Results, Row};

/// The least width in pixels; a long legend makes the plot wider.
const MIN_WIDTH: f64 = 720.0;
const HEIGHT: f64 = 460.0;
/// The frame of the curves; `BOTTOM` is the distance from the lower edge.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 560.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 56.0;
/// The left edge of the legend.
const LEGEND_LEFT: f64 = 580.0;
/// The greatest width of a letter.
const MAX_LETTER_WIDTH: f64 = 8.5;

/// A palette for colour-blind readers (Okabe and Ito).
const COLORS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// One line of the plot.
struct Series {
    name: String,
    kernel: String,
    /// The points: value of the sweep and rate.
    points: Vec<(f64, f64)>,
}

/// The quantity of the vertical axis.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Gflops,
    Gbs,
}

impl Unit {
    /// Returns operations if a kernel has at least one per byte; else bytes.
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

/// Plots the results; `x_values` holds the position of each value of the sweep.
pub(super) fn svg(results: &Results, x_values: &[f64]) -> String {
    let sweep = results.sweep.as_ref().expect("a picture has a sweep");
    let unit = Unit::of(&results.rows);
    let place = |row: &Row| {
        let at = sweep.values.iter().position(|value| Some(value) == row.point.as_ref());
        x_values[at.expect("a point of the sweep")]
    };
    let curves = series(results, &place, &|row| {
        Some((legend(results, row), unit.rate(row, row.times.median)))
    });
    let mut rooflines = series(results, &place, &|row| {
        let roofline = row.roofline.as_ref()?;
        let several = results.rows.iter().any(|other| other.kernel != row.kernel);
        let of = if several { format!(" of {}", row.kernel) } else { String::new() };
        Some((format!("roofline{of}"), unit.rate(row, roofline.seconds)))
    });
    // A roofline far above the curves is cut off, not the scale enlarged.
    let (curve, roofline) = (highest(&curves), highest(&rooflines));
    let frame = Frame::new(
        x_values,
        if roofline > 2.5 * curve { 1.2 * curve } else { curve.max(roofline) },
    );
    for series in &mut rooflines {
        if series.points.iter().all(|point| point.1 > frame.top) {
            let least = series.points.iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
            series.name.push_str(&format!(", above: {least:.0}"));
        }
    }
    let letters = curves.iter().chain(&rooflines).map(|series| series.name.chars().count()).max();
    let width = LEGEND_LEFT + 40.0 + MAX_LETTER_WIDTH * letters.unwrap_or(0) as f64;
    let mut svg = Svg::new(&title(results), width.max(MIN_WIDTH));
    frame.draw(&mut svg, &sweep.name, unit.name());
    for (at, series) in rooflines.iter().enumerate() {
        // If there are several rooflines, each has the colour of its kernel's first curve.
        let first = curves.iter().position(|curve| curve.kernel == series.kernel);
        let several = rooflines.len() > 1;
        let color = if several { COLORS[first.unwrap_or(at) % COLORS.len()] } else { "#777777" };
        frame.line(&mut svg, series, color, true, curves.len() + at);
    }
    for (at, series) in curves.iter().enumerate() {
        frame.line(&mut svg, series, COLORS[at % COLORS.len()], false, at);
    }
    svg.close("svg");
    svg.0
}

/// Plots lines with points at any position; the horizontal axis begins at 0.
pub fn curves(
    title: &str,
    x_label: &str,
    y_label: &str,
    lines: Vec<(String, Vec<(f64, f64)>)>,
) -> String {
    let line = |(name, points): (String, Vec<(f64, f64)>)| {
        let kernel = name.clone();
        Series { name, kernel, points }
    };
    let all: Vec<Series> = lines.into_iter().map(line).collect();
    let points = all.iter().flat_map(|series| &series.points);
    let end = points.map(|point| point.0).fold(0.0, f64::max).max(1e-3);
    let steps = Frame::new(&[0.0, end], end);
    let count = (end / steps.step).ceil() as usize;
    let marks: Vec<f64> = (0..=count).map(|mark| mark as f64 * steps.step).collect();
    let frame = Frame::new(&marks, highest(&all));
    let letters = all.iter().map(|series| series.name.chars().count()).max();
    let width = LEGEND_LEFT + 40.0 + MAX_LETTER_WIDTH * letters.unwrap_or(0) as f64;
    let mut svg = Svg::new(title, width.max(MIN_WIDTH));
    frame.draw(&mut svg, x_label, y_label);
    for (at, series) in all.iter().enumerate() {
        frame.line(&mut svg, series, COLORS[at % COLORS.len()], false, at);
    }
    svg.close("svg");
    svg.0
}

/// Returns the title: kernels, target, threads.
fn title(results: &Results) -> String {
    let mut kernels: Vec<&str> = Vec::new();
    for row in &results.rows {
        if !kernels.contains(&&row.kernel[..]) {
            kernels.push(&row.kernel);
        }
    }
    let threads = match results.threads {
        1 => "1 thread".to_string(),
        count => format!("{count} threads"),
    };
    let target = results.rows.first().map_or("", |row| &row.target);
    format!("{}, {target}, {threads}", kernels.join(", "))
}

fn highest(series: &[Series]) -> f64 {
    series.iter().flat_map(|series| &series.points).map(|point| point.1).fold(0.0, f64::max)
}

/// Returns the name of a line: the parts in which lines differ.
fn legend(results: &Results, row: &Row) -> String {
    let rows = &results.rows;
    let mut parts = Vec::new();
    if rows.iter().any(|other| other.kernel != row.kernel) {
        parts.push(&row.kernel[..]);
    }
    if results.has_kernels_of_several_files() {
        parts.push(&row.file[..]);
    }
    if parts.is_empty() || rows.iter().any(|other| other.schedule != row.schedule) {
        parts.push(&row.schedule[..]);
    }
    parts.join(" ")
}

/// Groups the rows into lines by name, in order of first appearance, with points from left to
/// right. `height` returns the line's name and the rate of a row.
fn series(
    results: &Results,
    place: &dyn Fn(&Row) -> f64,
    height: &dyn Fn(&Row) -> Option<(String, f64)>,
) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for row in &results.rows {
        let Some((name, y)) = height(row) else { continue };
        let x = place(row);
        let at = all.iter().position(|series| series.name == name).unwrap_or_else(|| {
            all.push(Series { name, kernel: row.kernel.clone(), points: Vec::new() });
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

/// The mapping from values to pixels.
struct Frame {
    /// The marked values of the horizontal axis, sorted.
    x_values: Vec<f64>,
    /// Whether the horizontal axis is logarithmic.
    logarithmic: bool,
    /// The value at the upper edge, and the distance of grid lines.
    top: f64,
    step: f64,
}

impl Frame {
    fn new(x_values: &[f64], highest: f64) -> Frame {
        let mut x_values = x_values.to_vec();
        x_values.sort_by(f64::total_cmp);
        let (first, last) = (x_values[0], x_values[x_values.len() - 1]);
        let logarithmic = first > 0.0 && last >= 4.0 * first;
        // At most eight steps of 1, 2 or 5 times a power of ten.
        let highest = if highest > 0.0 { highest } else { 1.0 };
        let power = 10_f64.powf((highest / 5.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|by| by * power);
        let step = step.into_iter().find(|step| highest / step <= 7.0).unwrap_or(10.0 * power);
        Frame { x_values, logarithmic, top: (highest * 1.02 / step).ceil() * step, step }
    }

    fn x(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.logarithmic { value.log2() } else { value };
        let (first, last) =
            (scale(self.x_values[0]), scale(self.x_values[self.x_values.len() - 1]));
        // Points keep a distance from the edges; a single point is in the middle.
        let (left, right) = (LEFT + 16.0, RIGHT - 16.0);
        if last > first {
            left + (scale(value) - first) / (last - first) * (right - left)
        } else {
            (left + right) / 2.0
        }
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - value / self.top * (HEIGHT - BOTTOM - TOP)
    }

    /// Draws the axes, the grid and their labels.
    fn draw(&self, svg: &mut Svg, x_label: &str, y_label: &str) {
        let bottom = HEIGHT - BOTTOM;
        let size = [("width", px(RIGHT - LEFT)), ("height", px(bottom - TOP))];
        let inside = [&[("x", px(LEFT)), ("y", px(TOP))][..], &size].concat();
        svg.open("clipPath", &[("id", "frame".to_string())]);
        svg.element("rect", &inside, None);
        svg.close("clipPath");
        let digits = (-self.step.log10().floor()).max(0.0) as usize;
        for line in 0..=(self.top / self.step).round() as usize {
            let value = line as f64 * self.step;
            let y = self.y(value);
            svg.path(&format!("M{LEFT} {y:.1}H{RIGHT}"), "#dddddd");
            svg.text((LEFT - 8.0, y + 4.0), "end", &format!("{value:.digits$}"));
        }
        svg.path(&format!("M{LEFT} {TOP}V{bottom}H{RIGHT}"), "#333333");
        // Labels that would touch the previous one are left out.
        let mut free = f64::NEG_INFINITY;
        for value in &self.x_values {
            let (x, number) = (self.x(*value), value.to_string());
            let width = 7.5 * number.len() as f64;
            svg.path(&format!("M{x:.1} {bottom}v5"), "#333333");
            if x - width / 2.0 >= free {
                svg.text((x, bottom + 20.0), "middle", &number);
                free = x + width / 2.0 + 4.0;
            }
        }
        svg.text(((LEFT + RIGHT) / 2.0, HEIGHT - 14.0), "middle", x_label);
        let turned = format!("translate(18 {}) rotate(-90)", px((TOP + bottom) / 2.0));
        let place = [("transform", turned), ("text-anchor", "middle".to_string())];
        svg.element("text", &place, Some(y_label));
    }

    /// Draws a line with its points, and its entry in the legend.
    fn line(&self, svg: &mut Svg, series: &Series, color: &str, dashed: bool, at: usize) {
        let (stroke, fill) = (("stroke", color.to_string()), ("fill", "none".to_string()));
        svg.open("g", &[stroke, fill, ("stroke-width", "2".to_string())]);
        let place = |&(x, y): &(f64, f64)| format!("{},{}", px(self.x(x)), px(self.y(y)));
        let places: Vec<String> = series.points.iter().map(place).collect();
        let dashes = dashed.then(|| ("stroke-dasharray", "6 4".to_string()));
        let clip = dashed.then(|| ("clip-path", "url(#frame)".to_string()));
        let mut shape = vec![("points", places.join(" "))];
        shape.extend(dashes.clone().into_iter().chain(clip));
        svg.element("polyline", &shape, None);
        for (x, y) in series.points.iter().filter(|_| !dashed) {
            let place = [("cx", px(self.x(*x))), ("cy", px(self.y(*y)))];
            let look = [("r", "3".to_string()), ("fill", color.to_string())];
            svg.open("circle", &[place, look].concat());
            svg.element("title", &[], Some(&format!("{}, {x}: {y:.2}", series.name)));
            svg.close("circle");
        }
        let (x, y) = (LEGEND_LEFT, TOP + 8.0 + 20.0 * at as f64);
        let mut sample = vec![("d", format!("M{x} {y}h24"))];
        sample.extend(dashes);
        svg.element("path", &sample, None);
        svg.close("g");
        svg.text((x + 32.0, y + 4.0), "start", &series.name);
    }
}

/// The text of an SVG.
struct Svg(String);

/// A tag's attributes.
type Attributes<'a> = [(&'a str, String)];

impl Svg {
    /// Returns a white image with a title.
    fn new(title: &str, width: f64) -> Svg {
        let mut svg = Svg(String::new());
        let (width, height) = (("width", width.to_string()), ("height", HEIGHT.to_string()));
        svg.open(
            "svg",
            &[
                ("xmlns", "http://www.w3.org/2000/svg".to_string()),
                ("viewBox", format!("0 0 {} {HEIGHT}", width.1)),
                width.clone(),
                height.clone(),
                ("font-family", "sans-serif".to_string()),
                ("font-size", "13".to_string()),
                ("fill", "#222222".to_string()),
            ],
        );
        svg.element("title", &[], Some(title));
        svg.element("rect", &[width, height, ("fill", "white".to_string())], None);
        let place = [("x", px(LEFT)), ("y", px(26.0)), ("font-size", "15".to_string())];
        svg.element("text", &place, Some(title));
        svg
    }

    fn open(&mut self, tag: &str, attributes: &Attributes<'_>) {
        self.begin(tag, attributes);
        self.0.push_str(">\n");
    }

    fn close(&mut self, tag: &str) {
        self.0.push_str(&format!("</{tag}>\n"));
    }

    /// Adds an element, with or without text.
    fn element(&mut self, tag: &str, attributes: &Attributes<'_>, content: Option<&str>) {
        self.begin(tag, attributes);
        match content {
            Some(content) => self.0.push_str(&format!(">{}</{tag}>\n", escape(content))),
            None => self.0.push_str("/>\n"),
        }
    }

    fn begin(&mut self, tag: &str, attributes: &Attributes<'_>) {
        self.0.push_str(&format!("<{tag}"));
        for (name, value) in attributes {
            self.0.push_str(&format!(" {name}=\"{}\"", escape(value)));
        }
    }

    fn path(&mut self, places: &str, color: &str) {
        let look = [("fill", "none".to_string()), ("stroke", color.to_string())];
        self.element("path", &[&[("d", places.to_string())][..], &look].concat(), None);
    }

    fn text(&mut self, (x, y): (f64, f64), anchor: &str, text: &str) {
        let place = [("x", px(x)), ("y", px(y)), ("text-anchor", anchor.to_string())];
        self.element("text", &place, Some(text));
    }
}

/// Formats a coordinate to a tenth of a pixel.
fn px(value: f64) -> String {
    format!("{value:.1}")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upper_edge_is_a_round_number_above_all_points() {
        for highest in [1e-3, 0.7, 1.0, 3.3, 9.99, 23.4, 99.0, 100.0, 259.4, 5e6] {
            let frame = Frame::new(&[1.0, 2.0], highest);
            let steps = frame.top / frame.step;
            assert!(frame.top >= highest && frame.top <= 1.6 * highest, "{highest}: {}", frame.top);
            assert!((3.0..=8.5).contains(&steps), "{highest}: {steps} steps");
            assert!((steps - steps.round()).abs() < 1e-9, "{highest}: {steps} steps");
        }
        assert!(Frame::new(&[1.0], 0.0).top > 0.0);
    }

    #[test]
    fn doubling_sizes_are_equally_spaced() {
        let frame = Frame::new(&[64.0, 256.0, 128.0], 1.0);
        let places = [64.0, 128.0, 256.0].map(|value| frame.x(value));
        assert!((places[1] - places[0] - (places[2] - places[1])).abs() < 1e-9, "{places:?}");
        assert!(places[0] > LEFT && places[2] < RIGHT);
        let steps = Frame::new(&[100.0, 200.0, 300.0], 1.0);
        assert!(!steps.logarithmic);
        assert!((steps.x(200.0) - (LEFT + RIGHT) / 2.0).abs() < 1e-9);
        assert!((Frame::new(&[5.0], 1.0).x(5.0) - (LEFT + RIGHT) / 2.0).abs() < 1e-9);
    }

    #[test]
    fn names_are_escaped() {
        let mut svg = Svg::new("a < b & \"c\"", 800.0);
        svg.close("svg");
        assert!(svg.0.contains("<title>a &lt; b &amp; &quot;c&quot;</title>"), "{}", svg.0);
    }
}
