// The kinds of facts, {"kind", "title", …}: how each is drawn, and which have a figure to touch.
import { algorithm, drawAlgorithm } from './algorithm.mjs';
import { drawMemory, drawPlot, drawRoofline, drawTraffic, plot, roofline, traffic } from './charts.mjs';
import { drawDiagram } from './diagram.mjs';
import { drawDropout, dropout } from './dropout.mjs';
import { drawFormats, drawRanges, formats } from './formats.mjs';
import { drawFragments, fragments } from './fragments.mjs';
import { drawPacking, packing } from './packing.mjs';
import { banks, drawBanks, drawSwizzle, swizzle } from './shared-memory.mjs';
import { drawRanks, ranks } from './ranks.mjs';
import { drawSoftmax, softmax } from './softmax.mjs';
import { blocks, drawOwners, drawTiles, tiles } from './tiles.mjs';
import { drawTimeline, drawWaits, timeline, waits } from './timeline.mjs';

export const draws = {
  algorithm: drawAlgorithm,
  banks: drawBanks,
  blocks: drawTiles,
  diagram: drawDiagram,
  dropout: drawDropout,
  formats: drawFormats,
  fragments: drawFragments,
  memory: drawMemory,
  owners: drawOwners,
  packing: drawPacking,
  plot: drawPlot,
  ranges: drawRanges,
  ranks: drawRanks,
  roofline: drawRoofline,
  softmax: drawSoftmax,
  swizzle: drawSwizzle,
  tiles: drawTiles,
  timeline: drawTimeline,
  traffic: drawTraffic,
  waits: drawWaits,
};
export const figures = {
  algorithm, banks, blocks, dropout, formats, fragments, packing, plot, ranks, roofline, softmax, swizzle, tiles, timeline, traffic, waits,
};
