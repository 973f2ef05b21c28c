export { default } from "../canvas/Canvas";
