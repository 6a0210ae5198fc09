import { fragments } from './fragments.mjs';
import { mount } from './mount.mjs';
import { banks, swizzle } from './shared-memory.mjs';
import { softmax } from './softmax.mjs';
import { tiles } from './tiles.mjs';
import { timeline } from './timeline.mjs';

mount({ banks, fragments, softmax, swizzle, tiles, timeline });
