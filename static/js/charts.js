// Paints the charts with ECharts in the page's colours. Data: <script type="application/json" id="data-…"> blocks.
// Tooltips are rich text, drawn and not inserted as HTML: the content security policy allows no inline style.
(function () {
  'use strict';
  var drawn = [];

  function token(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
  function data(id) {
    var block = document.getElementById('data-' + id);
    return block ? JSON.parse(block.textContent) : null;
  }
  function figure(value, digits) {
    return value == null ? 'not observed'
      : value.toLocaleString('en-US', { minimumFractionDigits: digits || 0, maximumFractionDigits: digits || 0 });
  }

  function base() {
    return {
      animation: false,
      textStyle: { fontFamily: getComputedStyle(document.body).fontFamily, color: token('--text') },
      tooltip: {
        trigger: 'axis', renderMode: 'richText', confine: true, backgroundColor: token('--surface'),
        borderColor: token('--line-2'), textStyle: { color: token('--text'), fontSize: 12 }
      }
    };
  }
  function axis(extra) {
    return Object.assign({
      axisLine: { lineStyle: { color: token('--line-2') } }, axisTick: { show: false },
      axisLabel: { color: token('--muted'), fontSize: 11, hideOverlap: true },
      splitLine: { lineStyle: { color: token('--line') } }
    }, extra);
  }
  function limitLine(value, label) {
    return {
      silent: true, symbol: 'none', data: [{ yAxis: value }],
      lineStyle: { color: token('--bad-dot'), type: 'dotted', width: 1.5 },
      label: { formatter: label, position: 'insideStartTop', color: token('--bad'), fontSize: 11 }
    };
  }

  var scales = {
    utilisation: function () { return { min: 0, max: 100, step: 50, unit: ' %' }; },
    memory: function (d) { return { min: 0, max: d.memory_gb, step: d.memory_gb / 2, unit: ' GB' }; },
    power: function (d) {
      var top = d.power_watt ? Math.ceil(d.power_watt * 1.1 / 200) * 200 : null;
      return { min: 0, max: top, step: top && top / 2, unit: ' W',
        limit: d.power_watt, label: d.power_watt ? 'limit ' + d.power_watt + ' W' : '' };
    },
    temperature: function (d) {
      return { min: 20, max: 100, step: 40, unit: ' °C', limit: d.slows_down_c, label: 'slows down at ' + d.slows_down_c + ' °C' };
    }
  };

  function mean(values) {
    return values.length ? values.reduce(function (a, b) { return a + b; }, 0) / values.length : null;
  }

  // Up to four units: one line each. More: the mean with a band from lowest to highest, and units that stand out by name.
  function unitSeries(d, key, scale) {
    var rows = d.series.map(function (s) { return { name: s.name, values: s[key] }; });
    var colours = ['--c1', '--c3', '--c2', '--c4'];
    function line(name, values, colour, dashed, width) {
      return { name: name, type: 'line', data: values, showSymbol: false, connectNulls: false,
        lineStyle: { width: width || 1.5, color: colour, type: dashed ? [5, 3] : 'solid' }, itemStyle: { color: colour } };
    }
    if (rows.length <= 4) {
      return rows.map(function (row, i) { return line(row.name, row.values, token(colours[i]), i % 2 === 1); });
    }
    var at = d.times.map(function (_, i) {
      return rows.map(function (row) { return row.values[i]; }).filter(function (v) { return v != null; });
    });
    var lowest = at.map(function (v) { return v.length ? Math.min.apply(null, v) : null; });
    var highest = at.map(function (v) { return v.length ? Math.max.apply(null, v) : null; });
    var middle = at.map(mean);
    var span = scale.max - scale.min || 100;
    var odd = rows.map(function (row) {
      var far = row.values.map(function (v, i) { return v == null || middle[i] == null ? null : Math.abs(v - middle[i]); })
        .filter(function (v) { return v != null; });
      return { row: row, far: mean(far) || 0 };
    }).filter(function (it) { return it.far > span * 0.08; }).sort(function (a, b) { return b.far - a.far; }).slice(0, 2);
    var band = { type: 'line', stack: 'band', showSymbol: false, silent: true, lineStyle: { opacity: 0 }, tooltip: { show: false } };
    return [
      Object.assign({}, band, { name: 'lowest', data: lowest }),
      Object.assign({}, band, { name: 'highest', data: highest.map(function (v, i) { return v == null ? null : v - lowest[i]; }),
        areaStyle: { color: token('--c1'), opacity: 0.18 } }),
      line('mean', middle, token('--c1'), false, 2)
    ].concat(odd.map(function (it) {
      var series = line(it.row.name, it.row.values, token('--c3'), true, 1.8);
      series.endLabel = { show: true, formatter: it.row.name, color: token('--text'), fontSize: 11, fontWeight: 600,
        backgroundColor: token('--surface'), padding: [1, 4], align: 'right', offset: [-6, -12] };
      return series;
    }));
  }

  var kinds = {
    units: function (el) {
      var d = data('units');
      if (!d) return null;
      var key = el.dataset.key, scale = scales[key](d), option = base();
      option.grid = { left: 40, right: 8, top: 12, bottom: 22 };
      option.xAxis = axis({ type: 'category', data: d.times, boundaryGap: false });
      option.yAxis = axis({ type: 'value', min: scale.min, max: scale.max, interval: scale.step || undefined, splitNumber: 2, axisLine: { show: false } });
      option.series = unitSeries(d, key, scale);
      if (scale.limit) option.series[option.series.length - 1].markLine = limitLine(scale.limit, scale.label);
      option.tooltip.formatter = function (points) {
        var i = points[0].dataIndex;
        var values = d.series.map(function (s) { return s[key][i]; }).filter(function (v) { return v != null; });
        if (!values.length) return d.times[i] + '\nnot observed';
        return d.times[i] + '\nmean ' + figure(mean(values)) + scale.unit + '\nlowest ' + figure(Math.min.apply(null, values)) +
          ', highest ' + figure(Math.max.apply(null, values)) + scale.unit;
      };
      var last = d.series.map(function (s) { return s[key][d.times.length - 1]; }).filter(function (v) { return v != null; });
      var now = document.getElementById('now-' + key);
      if (now) {
        var when = d.live ? 'now ' : 'at last ';
        now.textContent = !last.length ? 'not observed'
          : key === 'power' ? when + figure(last.reduce(function (a, b) { return a + b; }, 0) / 1000, 1) + ' kW in all'
          : key === 'temperature' ? when + 'up to ' + figure(Math.max.apply(null, last)) + ' °C'
          : key === 'memory' ? when + figure(mean(last)) + ' of ' + figure(d.memory_gb) + ' GB'
          : when + figure(mean(last)) + ' % on average';
      }
      return option;
    },
    burn: function (el) {
      var d = data('burn');
      if (!d) return null;
      var option = base(), thin = el.clientWidth < 480;
      option.grid = { left: 52, right: thin ? 16 : 96, top: 18, bottom: 24 };
      option.xAxis = axis({ type: 'category', data: d.days, boundaryGap: false });
      option.yAxis = axis({ type: 'value', axisLine: { show: false }, splitNumber: 4 });
      option.tooltip.valueFormatter = function (v) { return v == null ? '–' : d.currency + ' ' + figure(v, 2); };
      var charged = { name: 'Charged', type: 'line', data: d.used, showSymbol: false, lineStyle: { width: 2, color: token('--c1') },
        itemStyle: { color: token('--c1') }, areaStyle: { color: token('--c1'), opacity: 0.1 } };
      var coming = { name: 'Forecast', type: 'line', data: d.forecast, showSymbol: false,
        lineStyle: { width: 2, type: [5, 4], color: token('--c1') }, itemStyle: { color: token('--c1') } };
      if (d.budget) {
        option.yAxis.max = function (range) { return Math.ceil(Math.max(range.max, d.budget) * 1.1 / 1000) * 1000; };
        coming.markLine = limitLine(d.budget, 'budget ' + figure(d.budget));
      }
      charged.markLine = { silent: true, symbol: 'none', data: [{ xAxis: d.today }],
        lineStyle: { color: token('--tl-now'), type: 'solid', width: 1.5 }, label: { formatter: 'now', color: token('--tl-now'), fontSize: 11 } };
      option.series = [charged, coming];
      return option;
    },
    daily: function (el) {
      var d = data('daily');
      if (!d) return null;
      var option = base(), thin = el.clientWidth < 480;
      option.aria = { enabled: true, label: { enabled: false }, decal: { show: true, decals: [
        { symbol: 'none' },
        { symbol: 'rect', dashArrayX: [1, 0], dashArrayY: [2, 5], rotation: -0.78, color: 'rgba(255,255,255,.4)' },
        { symbol: 'circle', symbolSize: 0.7, dashArrayX: [[6, 6], [0, 6, 6, 0]], dashArrayY: [5, 0], color: 'rgba(255,255,255,.45)' },
        { symbol: 'rect', dashArrayX: [1, 0], dashArrayY: [2, 4], color: 'rgba(255,255,255,.4)' },
        { symbol: 'rect', dashArrayX: [1, 0], dashArrayY: [2, 5], rotation: 0.78, color: 'rgba(255,255,255,.4)' },
        { symbol: 'rect', dashArrayX: [2, 3], dashArrayY: [1, 0], color: 'rgba(255,255,255,.4)' }] } };
      option.grid = { left: 40, right: 4, top: thin ? 62 : 40, bottom: 24 };
      option.legend = { top: 0, left: 0, itemWidth: 14, itemHeight: 10, itemGap: 14, textStyle: { color: token('--text'), fontSize: 12 } };
      option.xAxis = axis({ type: 'category', data: d.days });
      option.yAxis = axis({ type: 'value', axisLine: { show: false }, splitNumber: 3 });
      option.tooltip.valueFormatter = function (v) { return figure(v, 1) + ' h'; };
      option.series = d.series.map(function (s, i) {
        return { name: s.name, type: 'bar', stack: 'all', data: s.hours, barCategoryGap: '28%',
          itemStyle: { color: token('--c' + (i % 6 + 1)) } };
      });
      return option;
    }
  };

  function draw() {
    drawn.forEach(function (chart) { chart.dispose(); });
    drawn = [];
    document.querySelectorAll('[data-chart]').forEach(function (el) {
      var option = kinds[el.dataset.chart](el);
      if (!option) return;
      var chart = echarts.init(el, null, { renderer: 'canvas' });
      chart.setOption(option);
      drawn.push(chart);
    });
  }

  addEventListener('resize', function () { drawn.forEach(function (chart) { chart.resize(); }); });
  document.documentElement.addEventListener('berth:theme', draw);
  document.addEventListener('htmx:after:swap', draw);
  draw();
})();
